"""The GPUs as NVIDIA's driver shows them through NVML; nothing on a machine without one."""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from ctypes import CDLL
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from msgspec import Struct

from tfs_proxy.observe import catalogue
from tfs_proxy.observe.metric import MeasuredMetric, MetricDescription, Points
from tfs_proxy.supervisor.host.daemon_thread import in_daemon_thread
from tfs_proxy.supervisor.scraping.latest_answer import LatestAnswer

log = logging.getLogger(__name__)

BINDINGS = "pynvml"
"""The module of the package nvidia-ml-py."""

_LIBRARY = "libnvidia-ml.so.1"
_PERCENT = 100


class GpuUsage(Struct, frozen=True):
    """One GPU; None for what its driver does not say, as with a GPU that is divided (MIG)."""

    index: int
    name: str
    utilization: float | None = None
    memory_used_bytes: int | None = None
    memory_total_bytes: int | None = None


class Gpus:
    """The GPUs as they were last seen; ``load`` imports NVML's bindings, None if they are not installed.

    It returns None if there is no driver.
    """

    def __init__(self, load: Callable[[], Any | None] | None) -> None:
        self._load = load
        self._nvml: Any = None
        self._answer = LatestAnswer(self._ask)

    @property
    def answers(self) -> Sequence[LatestAnswer[Sequence[GpuUsage]]]:
        """What a scrape refreshes; nothing without a driver."""
        return () if self._load is None else (self._answer,)

    def measure(self) -> Iterator[MeasuredMetric]:
        """Utilisation and memory, by GPU."""
        gpus = self._answer.value or ()
        readings: tuple[tuple[MetricDescription, Callable[[GpuUsage], float | None]], ...] = (
            (catalogue.GPU_UTILIZATION, lambda gpu: gpu.utilization),
            (catalogue.GPU_MEMORY_USAGE, lambda gpu: gpu.memory_used_bytes),
            (catalogue.GPU_MEMORY_LIMIT, lambda gpu: gpu.memory_total_bytes),
        )
        for description, read in readings:
            points: Points = {
                (str(gpu.index), gpu.name): value for gpu in gpus if (value := read(gpu)) is not None
            }
            yield MeasuredMetric(description, points)

    async def _ask(self) -> Sequence[GpuUsage] | None:
        # A driver in trouble can hold a call for seconds: neither a scrape nor the exit may wait for it.
        return await in_daemon_thread(self._read, "gpus")

    def _read(self) -> Sequence[GpuUsage] | None:
        if self._nvml is None:
            self._begin()
        nvml = self._nvml
        if nvml is None:
            return None
        try:
            return [_usage(nvml, index) for index in range(nvml.nvmlDeviceGetCount())]
        except nvml.NVMLError as error:
            log.debug("the driver does not say what the GPUs do: %s", error)
            return None

    def _begin(self) -> None:
        """Open the driver; without one it is not tried again."""
        if self._load is None:
            return
        nvml = self._load()
        if nvml is None:
            self._load = None
            return
        try:
            nvml.nvmlInit()
        except nvml.NVMLError as error:
            log.debug("no GPUs in /metrics: %s", error)
            self._load = None
        else:
            self._nvml = nvml


def _usage(nvml: Any, index: int) -> GpuUsage:
    device = nvml.nvmlDeviceGetHandleByIndex(index)
    name = nvml.nvmlDeviceGetName(device)
    utilization = used_bytes = total_bytes = None
    with suppress(nvml.NVMLError):
        utilization = nvml.nvmlDeviceGetUtilizationRates(device).gpu / _PERCENT
    with suppress(nvml.NVMLError):
        memory = nvml.nvmlDeviceGetMemoryInfo(device)
        used_bytes, total_bytes = memory.used, memory.total
    text = name.decode(errors="replace") if isinstance(name, bytes) else str(name)
    return GpuUsage(index, text, utilization, used_bytes, total_bytes)


def find_gpus() -> Gpus:
    """The GPUs of this machine, if the package nvidia-ml-py is installed."""
    return Gpus(_bindings if find_spec(BINDINGS) else None)


def _bindings() -> Any | None:
    """The module; None without the driver's library, which spares a machine without GPUs 2 MB."""
    try:
        CDLL(_LIBRARY)
    except OSError:
        return None
    return import_module(BINDINGS)
