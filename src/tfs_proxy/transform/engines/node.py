"""One node of a job that several share: a serving stack, and an engine that gets object after object."""

import contextlib
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, replace
from pathlib import Path
from queue import SimpleQueue

from tfs_proxy.archive.s3_client import S3_SCHEME
from tfs_proxy.errors import SettingsError
from tfs_proxy.transform.engines.local import LocalEngine, StartOutput, make_local_engine
from tfs_proxy.transform.failures import RunStopped
from tfs_proxy.transform.job import ExecutionPlan
from tfs_proxy.transform.options import TransformOptions, open_endpoint, output_target, served_content
from tfs_proxy.transform.ordered_output import OrderedOutput
from tfs_proxy.transform.run_statistics import Counters, ObjectReport, RunStatistics, Workload
from tfs_proxy.transform.send.connection import Endpoint
from tfs_proxy.transform.send.stack import fetch_execution_parameters
from tfs_proxy.transform.stores.interface import InputObject
from tfs_proxy.transform.stores.local import local_object


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a node reports once it is ready; ``content`` identifies the model that it serves."""

    plan: ExecutionPlan
    content: str


@dataclass(frozen=True, slots=True)
class RunTerms:
    """What all nodes of a run share, so that an output does not depend on the node that makes it."""

    fingerprint: str
    strategy: str
    payload_bytes: int | None


@dataclass(frozen=True, slots=True)
class SharedStorageProbe:
    """What every node must be able to see: one of the inputs, and a marker file in the output folder."""

    item: InputObject
    marker: Path | None

    def check(self) -> None:
        """Raise SettingsError if this node sees other folders than the machine that made the probe."""
        item = self.item
        if not item.address.startswith(S3_SCHEME) and not _sees(item):
            raise SettingsError(f"That node does not see the input {item.address}: {_REMEDY}")
        if self.marker is not None and not self.marker.is_file():
            raise SettingsError(f"That node does not see the output {self.marker.parent}: {_REMEDY}")


_REMEDY = "give s3:// addresses, or folders that all nodes share."


def _sees(item: InputObject) -> bool:
    with contextlib.suppress(SettingsError):
        return local_object(Path(item.address), item.name).version == item.version
    return False


class Node:
    """Starts its stack with the first call; `close` ends it. ``name`` is different for every node."""

    def __init__(self, options: TransformOptions, name: str, probe: SharedStorageProbe) -> None:
        self._options = options
        self._name = name
        self._probe = probe
        self._stack = contextlib.ExitStack()
        self._endpoint: Endpoint | None = None
        self._capabilities: Capabilities | None = None
        self._engine_thread: EngineThread | None = None
        self._lock = threading.Lock()

    def open(self) -> Capabilities:
        """Serve the model, or find the endpoint. Raises StopServing."""
        with self._lock:
            return self._opened()[0]

    def transform(self, item: InputObject, terms: RunTerms) -> "Future[ObjectReport]":
        """Queue ``item``; its report comes when it is written or failed.

        Raises StopServing, at once or in place of the report, if this node can't go on.
        """
        with self._lock:
            capabilities, endpoint = self._opened()
            if self._engine_thread is None:
                self._engine_thread = self._start_engine(capabilities, endpoint, terms)
            return self._engine_thread.add(item)

    def in_progress(self) -> Counters:
        """What unfinished objects have come to."""
        return self._engine_thread.in_progress() if self._engine_thread else Counters()

    def close(self) -> None:
        """Give up unfinished objects without leaving parts of them, and end the stack."""
        with self._lock:
            if self._engine_thread is not None:
                self._engine_thread.close()
            self._stack.close()

    def _opened(self) -> tuple[Capabilities, Endpoint]:
        if self._capabilities is None or self._endpoint is None:
            self._probe.check()
            content = served_content(self._options)
            self._endpoint = self._stack.enter_context(open_endpoint(self._options))
            parameters = fetch_execution_parameters(self._endpoint)
            self._capabilities = Capabilities(ExecutionPlan.resolve(self._options.job, parameters), content)
        return self._capabilities, self._endpoint

    def _start_engine(
        self, capabilities: Capabilities, endpoint: Endpoint, terms: RunTerms
    ) -> "EngineThread":
        plan = replace(capabilities.plan, strategy=terms.strategy, payload_bytes=terms.payload_bytes)
        target = output_target(self._options, self._name)
        requests = RunStatistics(Workload(0, 0))

        def make_engine(start_output: StartOutput) -> LocalEngine:
            return make_local_engine(self._options, plan, endpoint, requests, start_output)

        def make_output(
            item: InputObject, statistics: RunStatistics, release: Release, on_end: OnEnd
        ) -> OrderedOutput:
            return OrderedOutput(item, target, terms.fingerprint, statistics, release, on_end)

        return EngineThread(make_engine, make_output, requests)


Release = Callable[[], None]
OnEnd = Callable[[OrderedOutput], None]
MakeOutput = Callable[[InputObject, RunStatistics, Release, OnEnd], OrderedOutput]


@dataclass(frozen=True, slots=True)
class _InProgress:
    """An unfinished object."""

    statistics: RunStatistics
    report: "Future[ObjectReport]"


class EngineThread:
    """Runs an engine in a thread of its own, which gets objects one by one; keeps statistics for each."""

    def __init__(
        self,
        make_engine: Callable[[StartOutput], LocalEngine],
        make_output: MakeOutput,
        requests: RunStatistics,
    ) -> None:
        self._make_output = make_output
        self._requests = requests
        self._items: SimpleQueue[InputObject | None] = SimpleQueue()
        self._in_progress: dict[str, _InProgress] = {}
        self._end_reason: BaseException | None = None
        self._lock = threading.Lock()
        self._engine = make_engine(self._start_output)
        self._thread = threading.Thread(target=self._run, name="engine")
        self._thread.start()

    def add(self, item: InputObject) -> "Future[ObjectReport]":
        """Queue ``item``; its report includes all requests since the report before."""
        unfinished = _InProgress(RunStatistics(Workload(0, 0)), Future())
        with self._lock:
            if self._end_reason is not None:
                unfinished.report.set_exception(self._end_reason)
            else:
                self._in_progress[item.name] = unfinished
                self._items.put(item)
        return unfinished.report

    def in_progress(self) -> Counters:
        """The sum over all unfinished objects."""
        with self._lock:
            counts = [unfinished.statistics.counts for unfinished in self._in_progress.values()]
        return Counters(
            records=sum(counters.records for counters in counts),
            bytes=sum(counters.bytes for counters in counts),
        )

    def close(self) -> None:
        """Give up unfinished objects and wait for the thread."""
        self._engine.stop()
        self._items.put(None)
        self._thread.join()

    def _start_output(self, item: InputObject, release: Release) -> OrderedOutput:
        return self._make_output(item, self._in_progress[item.name].statistics, release, self._on_end)

    def _on_end(self, output: OrderedOutput) -> None:
        if output.was_stopped:
            # Wake the engine, which waits for the next object: it ends and raises the reason.
            self._items.put(None)
            return
        with self._lock:
            finished = self._in_progress.pop(output.item.name)
        combined = RunStatistics(Workload(0, 0))
        combined.merge(finished.statistics.drain())
        combined.merge(self._requests.drain())
        finished.report.set_result(combined.drain())

    def _run(self) -> None:
        end_reason: BaseException = RunStopped("the run was stopped")
        try:
            self._engine.run(iter(self._items.get, None))
        except BaseException as error:  # noqa: BLE001 - every open report raises it
            end_reason = error
        with self._lock:
            self._end_reason = end_reason
            for unfinished in self._in_progress.values():
                unfinished.report.set_exception(end_reason)
            self._in_progress.clear()
