"""The slow parts of `/metrics`: model servers, scripts' own metrics, the driver of the GPUs through NVML.

A scrape waits for them for a moment, then shows what is known.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from ctypes import CDLL
from functools import partial
from http import HTTPStatus
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from tfs_proxy.observe import catalogue
from tfs_proxy.observe.metric import Labels, MeasuredMetric, Points
from tfs_proxy.run.host.waiting import in_daemon_thread
from tfs_proxy.values.deployment import Instance
from tfs_proxy.values.errors import UpstreamError
from tfs_proxy.wire.http_client import get_async

if TYPE_CHECKING:
    from tfs_proxy.observe.exposition import MergedFamily
    from tfs_proxy.observe.script_metrics import ScriptMetrics

log = logging.getLogger(__name__)

Answer = TypeVar("Answer")

SCRAPE_WAIT_SECONDS = 0.004
"""Longest wait of a scrape; a later answer is shown as it was the last time."""


class LatestAnswer(Generic[Answer]):
    """Keeps the last answer of ``ask``; ``value`` is None before the first, and after a failure.

    ``ask`` returns None for a failure, and has a limit of its own: until then it is not called again.
    """

    def __init__(self, ask: Callable[[], Awaitable[Answer | None]]) -> None:
        self._ask = ask
        self._asking: asyncio.Task[None] | None = None
        self.answered_at = 0.0
        self.value: Answer | None = None

    def refresh(self) -> "asyncio.Task[None]":
        """Asks, unless that is under way; returns the task that waits for the answer."""
        if self._asking is None or self._asking.done():

            async def ask() -> None:
                self.value = await self._ask()
                self.answered_at = time.monotonic()

            self._asking = asyncio.create_task(ask())
        return self._asking


async def refresh_all(
    answers: Iterable[LatestAnswer[Any]], wait_seconds: float = SCRAPE_WAIT_SECONDS
) -> None:
    """Asks all concurrently, and waits for at most ``wait_seconds``."""
    tasks = [answer.refresh() for answer in answers]
    if tasks:
        await asyncio.wait(tasks, timeout=wait_seconds)


ANSWER_SECONDS = 2.0
"""Limit of a model server's answer; the scrape that asked it does not wait for so long."""


class ModelServerMetrics:
    """Text by instance, as each last answered; nothing before `begin`."""

    def __init__(self) -> None:
        self._answers: dict[str, LatestAnswer[str]] = {}

    def begin(self, instances: Iterable[Instance], path: str | None) -> None:
        """Asks ``instances`` at ``path`` from now on; None if they show no metrics."""
        if path is not None:
            self._answers = {
                str(instance.index): LatestAnswer(partial(self._ask, instance, path))
                for instance in instances
            }

    @property
    def answers(self) -> Iterable[LatestAnswer[str]]:
        return self._answers.values()

    def texts(self) -> dict[str, str]:
        return {server: answer.value for server, answer in self._answers.items() if answer.value is not None}

    def measure(self) -> Iterator[MeasuredMetric]:
        """Answering instances, and the age of their metrics."""
        ages: Points = {
            (server,): time.monotonic() - answer.answered_at
            for server, answer in self._answers.items()
            if answer.value is not None
        }
        yield MeasuredMetric(catalogue.MODEL_SERVER_METRICS_AGE, ages)

    async def _ask(self, instance: Instance, path: str) -> str | None:
        try:
            answer = await get_async(instance.host, instance.rest_port, path, ANSWER_SECONDS)
        except UpstreamError:
            return None
        return answer.body.decode(errors="replace") if answer.status == HTTPStatus.OK else None


BINDINGS = "pynvml"

_LIBRARY = "libnvidia-ml.so.1"
_PERCENT = 100


GPU_METRICS = catalogue.GPU_UTILIZATION, catalogue.GPU_MEMORY_USAGE, catalogue.GPU_MEMORY_LIMIT
GpuUsage = tuple[Points, Points, Points]
"""Values of these metrics, as the driver tells them: not all of a divided GPU (MIG)."""


class Gpus:
    """The GPUs as they were last seen; ``load`` imports NVML's bindings, None if they are not installed.

    It returns None if there is no driver.
    """

    def __init__(self, load: Callable[[], Any | None] | None) -> None:
        self._load = load
        self._nvml: Any = None
        self._answer = LatestAnswer(self._ask)

    @property
    def answers(self) -> Sequence[LatestAnswer[GpuUsage]]:
        return () if self._load is None else (self._answer,)

    def measure(self) -> Iterator[MeasuredMetric]:
        yield from map(MeasuredMetric, GPU_METRICS, self._answer.value or ({}, {}, {}))

    async def _ask(self) -> GpuUsage | None:
        # A driver in trouble can block a call for seconds: neither a scrape nor the exit may wait for it.
        return await in_daemon_thread(self._read, "gpus")

    def _read(self) -> GpuUsage | None:
        """Opens the driver first; without one it is not tried again."""
        nvml = self._nvml
        if nvml is None and self._load is not None:
            nvml = self._load()
        if nvml is None:
            self._load = None
            return None
        try:
            if self._nvml is None:
                nvml.nvmlInit()
            self._nvml = nvml
            share = dict[Labels, float]()
            used = dict[Labels, float]()
            total = dict[Labels, float]()
            for index in range(nvml.nvmlDeviceGetCount()):
                device = nvml.nvmlDeviceGetHandleByIndex(index)
                name = nvml.nvmlDeviceGetName(device)
                gpu = str(index), name.decode(errors="replace") if isinstance(name, bytes) else str(name)
                with suppress(nvml.NVMLError):
                    share[gpu] = nvml.nvmlDeviceGetUtilizationRates(device).gpu / _PERCENT
                with suppress(nvml.NVMLError):
                    memory = nvml.nvmlDeviceGetMemoryInfo(device)
                    used[gpu] = memory.used
                    total[gpu] = memory.total
        except nvml.NVMLError as error:
            log.debug("the driver does not say what the GPUs do: %s", error)
            self._load = None if self._nvml is None else self._load
            return None
        return share, used, total


def _bindings() -> Any | None:
    """The module; None without the driver's library, which spares a machine without GPUs 2 MB."""
    try:
        CDLL(_LIBRARY)
    except OSError:
        return None
    return import_module(BINDINGS)


FOLD_SECONDS = 60.0
SCRIPT_WAIT_SECONDS = 0.25


class OutsideMetrics:
    """The model servers' own metrics, the scripts', and the GPUs'.

    ``folders`` has those of the scripts' metrics by model, whose name ``label`` gets unless it is empty.
    """

    def __init__(self, folders: Callable[[], Mapping[str, Path]] = dict, label: str = "") -> None:
        self.model_servers = ModelServerMetrics()
        self._gpus = Gpus(_bindings if find_spec(BINDINGS) else None)
        self._folders = folders
        self._label = label
        self._scripts: ScriptMetrics | None = None
        self._of_scripts = LatestAnswer(self._ask_scripts)

    def warm_up(self) -> None:
        """Asks all of them, so that the first scrape has something to show."""
        for answer in self._answers():
            answer.refresh()

    async def refresh(self) -> None:
        """Asks all of them, and waits for a few milliseconds; longer for files of scripts."""
        await refresh_all(self._answers())
        await self._refresh_scripts()

    async def keep_folding(self) -> None:
        """Adds up files of processes that have ended, as a scrape does; never returns."""
        while True:
            await asyncio.sleep(FOLD_SECONDS)
            await self._refresh_scripts()

    async def _refresh_scripts(self) -> None:
        if self._of_scripts.value or any(any(folder.glob("*")) for folder in self._folders().values()):
            await refresh_all([self._of_scripts], SCRIPT_WAIT_SECONDS)

    def _answers(self) -> tuple[LatestAnswer[Any], ...]:
        return (*self.model_servers.answers, *self._gpus.answers)

    async def _ask_scripts(self) -> "Sequence[MergedFamily]":
        return await in_daemon_thread(self._read_scripts, "script metrics")

    def _read_scripts(self) -> "Sequence[MergedFamily]":
        from tfs_proxy.observe.script_metrics import ScriptMetrics

        self._scripts = self._scripts or ScriptMetrics(self._label)
        return self._scripts.read(self._folders())

    def measure(self) -> Iterator[MeasuredMetric]:
        yield from self.model_servers.measure()
        yield from self._gpus.measure()

    def families(self) -> Iterable["MergedFamily"]:
        """The model servers' own metrics, with the label ``server``, and the scripts'."""
        # Its library takes 70 ms to import, which no start should wait for.
        from tfs_proxy.observe.exposition import merged

        return [*merged(self.model_servers.texts(), "server"), *(self._of_scripts.value or ())]
