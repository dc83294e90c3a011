"""GPUs as the driver shows them, by the functions that NVML's own bindings have."""

import asyncio
from itertools import cycle
from types import SimpleNamespace
from typing import Any
from unittest.mock import create_autospec

import pynvml
import pytest

from tfs_proxy.observe.exposition import text_of
from tfs_proxy.run.scraping import Gpus

NOT_SUPPORTED, UNKNOWN = 3, 999


@pytest.fixture
def nvml() -> Any:
    """A card that serves a model, and one in instances (MIG), which has no utilisation as a whole."""
    bindings = create_autospec(pynvml, NVMLError=pynvml.NVMLError)
    memory = SimpleNamespace(used=14_449_901_568, free=1_371_406_336, total=15_821_307_904)
    bindings.nvmlDeviceGetCount.return_value = 2
    bindings.nvmlDeviceGetName.side_effect = cycle([b"Tesla T4", "NVIDIA A100-SXM4-40GB"])
    rates = [SimpleNamespace(gpu=37, memory=12), pynvml.NVMLError(NOT_SUPPORTED)]
    bindings.nvmlDeviceGetUtilizationRates.side_effect = cycle(rates)
    bindings.nvmlDeviceGetMemoryInfo.return_value = memory
    return bindings


def scraped(gpus: Gpus) -> str:
    async def refresh() -> None:
        for answer in gpus.answers:
            await answer.refresh()

    asyncio.run(refresh())
    return text_of(gpus.measure())


def test_utilisation_and_memory_of_every_gpu(nvml: Any) -> None:
    text = scraped(Gpus(lambda: nvml))

    assert 'hw_gpu_utilization_ratio{hw_id="0",hw_name="Tesla T4"} 0.37' in text
    assert 'hw_gpu_memory_usage_bytes{hw_id="0",hw_name="Tesla T4"} 1.4449901568e+10' in text
    assert 'hw_gpu_memory_limit_bytes{hw_id="1",hw_name="NVIDIA A100-SXM4-40GB"} 1.5821307904e+10' in text
    assert 'hw_gpu_utilization_ratio{hw_id="1"' not in text


def test_a_driver_that_fails_later_shows_nothing_until_it_is_back(nvml: Any) -> None:
    """A GPU that has fallen off the bus is no error of a scrape."""
    gpus = Gpus(lambda: nvml)

    assert "Tesla T4" in scraped(gpus)
    nvml.nvmlDeviceGetCount.side_effect = pynvml.NVMLError(UNKNOWN)
    assert "Tesla T4" not in scraped(gpus)
    nvml.nvmlDeviceGetCount.side_effect = None
    assert "Tesla T4" in scraped(gpus)


def test_a_machine_without_a_driver_or_its_library_shows_nothing(nvml: Any) -> None:
    """Nor is it looked for again."""
    for status in (pynvml.NVML_ERROR_LIBRARY_NOT_FOUND, pynvml.NVML_ERROR_DRIVER_NOT_LOADED, UNKNOWN):
        nvml.nvmlInit.side_effect = pynvml.NVMLError(status)
        gpus = Gpus(lambda: nvml)
        assert ("hw_id" in scraped(gpus), gpus.answers) == (False, ())
    for load in (lambda: None, None):
        assert "hw_id" not in scraped(Gpus(load))
