"""One machine of a job that several share: a serving stack, and an engine that gets object after object."""

import contextlib
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, replace
from pathlib import Path
from queue import SimpleQueue

from tfs_proxy.archive.s3_client import S3_SCHEME
from tfs_proxy.errors import SettingsError
from tfs_proxy.transform.engines.local import Begin, LocalEngine, make_local_engine
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
    """What a machine says of itself once it is ready; ``content`` stands for the model that it serves."""

    plan: ExecutionPlan
    content: str


@dataclass(frozen=True, slots=True)
class RunTerms:
    """What all machines of a run keep to, so that it does not matter which of them does an object."""

    fingerprint: str
    strategy: str
    payload_bytes: int | None


@dataclass(frozen=True, slots=True)
class SharedStorageProbe:
    """What a machine must be able to see: one of the inputs, and a file in an output folder."""

    item: InputObject
    sign: Path | None

    def check(self) -> None:
        """Raise SettingsError where this machine sees other folders than the one that made it."""
        item = self.item
        if not item.address.startswith(S3_SCHEME) and not _sees(item):
            raise SettingsError(f"The input {item.address} is not to be seen there: {_SHARE}")
        if self.sign is not None and not self.sign.is_file():
            raise SettingsError(f"The output {self.sign.parent} is not to be seen there: {_SHARE}")


_SHARE = "give s3:// addresses, or folders that all machines share."


def _sees(item: InputObject) -> bool:
    with contextlib.suppress(SettingsError):
        return local_object(Path(item.address), item.name).version == item.version
    return False


class Node:
    """Its stack starts with the first call; `close` ends it. ``name`` tells the run's machines apart."""

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
        """Begin with ``item`` as soon as there is room; the report comes when it is written or failed.

        Raises StopServing, at once or in place of the report, where this machine can't go on.
        """
        with self._lock:
            capabilities, endpoint = self._opened()
            if self._engine_thread is None:
                self._engine_thread = self._fed(capabilities, endpoint, terms)
            return self._engine_thread.add(item)

    def in_progress(self) -> Counters:
        """What the objects that are on their way have come to."""
        return self._engine_thread.in_progress() if self._engine_thread else Counters()

    def close(self) -> None:
        """Give up what is on its way, nothing of which is left, and end the stack."""
        with self._lock:
            if self._engine_thread is not None:
                self._engine_thread.close()
            self._stack.close()

    def _opened(self) -> tuple[Capabilities, Endpoint]:
        if self._capabilities is None or self._endpoint is None:
            self._probe.check()
            content = served_content(self._options)
            self._endpoint = self._stack.enter_context(open_endpoint(self._options))
            plan = ExecutionPlan.resolve(self._options.job, fetch_execution_parameters(self._endpoint))
            self._capabilities = Capabilities(plan, content)
        return self._capabilities, self._endpoint

    def _fed(self, capabilities: Capabilities, endpoint: Endpoint, terms: RunTerms) -> "EngineThread":
        plan = replace(capabilities.plan, strategy=terms.strategy, payload_bytes=terms.payload_bytes)
        target = output_target(self._options, self._name)
        requests = RunStatistics(Workload(0, 0))

        def begin(
            item: InputObject, statistics: RunStatistics, release: Release, ended: Ended
        ) -> OrderedOutput:
            return OrderedOutput(item, target, terms.fingerprint, statistics, release, ended)

        return EngineThread(
            lambda each: make_local_engine(self._options, plan, endpoint, requests, each), begin, requests
        )


Release = Callable[[], None]
Ended = Callable[[OrderedOutput], None]


@dataclass(frozen=True, slots=True)
class _InProgress:
    """An object on its way."""

    statistics: RunStatistics
    report: "Future[ObjectReport]"


class EngineThread:
    """An engine in a thread of its own that gets objects one by one, and the statistics of each."""

    def __init__(
        self,
        make: Callable[[Begin], LocalEngine],
        begin: Callable[[InputObject, RunStatistics, Release, Ended], OrderedOutput],
        requests: RunStatistics,
    ) -> None:
        self._begin = begin
        self._requests = requests
        self._items: SimpleQueue[InputObject | None] = SimpleQueue()
        self._in_progress: dict[str, _InProgress] = {}
        self._why: BaseException | None = None
        self._lock = threading.Lock()
        self._engine = make(self._start_output)
        self._thread = threading.Thread(target=self._run, name="engine_thread")
        self._thread.start()

    def add(self, item: InputObject) -> "Future[ObjectReport]":
        """Let it be done; the report of it, and of requests since the report before."""
        in_progress = _InProgress(RunStatistics(Workload(0, 0)), Future())
        with self._lock:
            if self._why is not None:
                in_progress.report.set_exception(self._why)
            else:
                self._in_progress[item.name] = in_progress
                self._items.put(item)
        return in_progress.report

    def in_progress(self) -> Counters:
        """The sum of what is on its way."""
        with self._lock:
            counts = [each.statistics.counts for each in self._in_progress.values()]
        return Counters(
            records=sum(each.records for each in counts), bytes=sum(each.bytes for each in counts)
        )

    def close(self) -> None:
        """Give up what is on its way."""
        self._engine.stop()
        self._items.put(None)
        self._thread.join()

    def _start_output(self, item: InputObject, release: Release) -> OrderedOutput:
        return self._begin(item, self._in_progress[item.name].statistics, release, self._ended)

    def _ended(self, output: OrderedOutput) -> None:
        if output.was_stopped:  # the engine says why when it ends, which it does for want of a next object
            self._items.put(None)
            return
        with self._lock:
            in_progress = self._in_progress.pop(output.item.name)
        whole = RunStatistics(Workload(0, 0))
        whole.merge(in_progress.statistics.taken())
        whole.merge(self._requests.taken())
        in_progress.report.set_result(whole.taken())

    def _run(self) -> None:
        why: BaseException = RunStopped("the run was stopped")
        try:
            self._engine.run(iter(self._items.get, None))
        except BaseException as error:  # noqa: BLE001 - every report hears of it
            why = error
        with self._lock:
            self._why = why
            for each in self._in_progress.values():
                each.report.set_exception(why)
            self._in_progress.clear()
