"""GPUs as the driver shows them: NVML's own bindings above recorded answers of its library."""

# ruff: noqa: N802 - the library's functions have NVML's names

import asyncio
from ctypes import c_char, c_uint
from typing import Any

import pynvml
import pytest

from tfs_proxy.observe.exposition import text_of
from tfs_proxy.run.scraping import Gpus

NOT_SUPPORTED, UNKNOWN = 3, 999
TESLA_T4 = {
    "name": b"Tesla T4",
    "gpu": 37,
    "memory": 12,
    "used": 14_449_901_568,
    "free": 1_371_406_336,
    "total": 15_821_307_904,
}
"""What ``libnvidia-ml`` answers for a card that serves a model."""

DIVIDED = {**TESLA_T4, "name": b"NVIDIA A100-SXM4-40GB", "gpu": None}
"""A card in instances (MIG) has no utilisation as a whole."""


class RecordedLibrary:
    """``libnvidia-ml.so.1`` as far as it is used: C functions that fill what they get, and return a status."""

    def __init__(self, *devices: dict[str, Any], status: int = 0) -> None:
        self._devices = devices
        self.status = status

    def nvmlInitWithFlags(self, _flags: int) -> int:
        return self.status

    def nvmlDeviceGetCount_v2(self, count: Any) -> int:
        count._obj.value = len(self._devices)
        return self.status

    def nvmlDeviceGetHandleByIndex_v2(self, index: c_uint, device: Any) -> int:
        device._obj.contents = pynvml.struct_c_nvmlDevice_t()
        self._index = index.value
        return 0

    def nvmlDeviceGetName(self, _device: Any, name: Any, _length: c_uint) -> int:
        name.value = self._devices[self._index]["name"]
        return 0

    def nvmlDeviceGetUtilizationRates(self, _device: Any, rates: Any) -> int:
        device = self._devices[self._index]
        if device["gpu"] is None:
            return NOT_SUPPORTED
        rates._obj.gpu, rates._obj.memory = device["gpu"], device["memory"]
        return 0

    def nvmlDeviceGetMemoryInfo(self, _device: Any, memory: Any) -> int:
        device = self._devices[self._index]
        memory._obj.used, memory._obj.free = device["used"], device["free"]
        memory._obj.total = device["total"]
        return 0


@pytest.fixture(autouse=True)
def bindings(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """NVML's bindings forget the functions of the library that they had."""
    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
    return monkeypatch


def use(library: RecordedLibrary | None, bindings: pytest.MonkeyPatch) -> Gpus:
    """The GPUs of a machine whose driver has this library."""
    bindings.setattr(pynvml, "nvmlLib", library)
    return Gpus(lambda: pynvml)


def scraped(gpus: Gpus) -> str:
    async def refresh() -> None:
        for answer in gpus.answers:
            await answer.refresh()

    asyncio.run(refresh())
    return text_of(gpus.measure())


def test_utilisation_and_memory_of_every_gpu(bindings: pytest.MonkeyPatch) -> None:
    text = scraped(use(RecordedLibrary(TESLA_T4, DIVIDED), bindings))

    assert 'hw_gpu_utilization_ratio{hw_id="0",hw_name="Tesla T4"} 0.37' in text
    assert 'hw_gpu_memory_usage_bytes{hw_id="0",hw_name="Tesla T4"} 1.4449901568e+10' in text
    assert 'hw_gpu_memory_limit_bytes{hw_id="1",hw_name="NVIDIA A100-SXM4-40GB"} 1.5821307904e+10' in text
    assert 'hw_gpu_utilization_ratio{hw_id="1"' not in text


def test_a_driver_that_fails_later_shows_nothing_until_it_is_back(bindings: pytest.MonkeyPatch) -> None:
    """A GPU that has fallen off the bus is no error of a scrape."""
    library = RecordedLibrary(TESLA_T4)
    gpus = use(library, bindings)

    assert "Tesla T4" in scraped(gpus)
    library.status = UNKNOWN
    assert "Tesla T4" not in scraped(gpus)
    library.status = 0
    assert "Tesla T4" in scraped(gpus)


def test_a_machine_without_a_driver_or_its_library_shows_nothing(bindings: pytest.MonkeyPatch) -> None:
    for status in (1, 9, UNKNOWN):
        gpus = use(RecordedLibrary(TESLA_T4, status=status), bindings)
        assert ("hw_id" in scraped(gpus), gpus.answers) == (False, ())
    bindings.setattr(pynvml, "CDLL", _no_library)

    assert "hw_id" not in scraped(use(None, bindings))
    assert "hw_id" not in scraped(Gpus(None))


def _no_library(name: str) -> c_char:
    raise OSError(name)
