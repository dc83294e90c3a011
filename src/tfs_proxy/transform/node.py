"""One node of a job that several share: a serving stack, and an engine that gets object after object."""

import asyncio
import contextlib
import sys
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path
from queue import SimpleQueue

from msgspec import Struct
from msgspec.structs import replace

from tfs_proxy.settings.settings import inherited_environment
from tfs_proxy.transform.files import STATE_FOLDER, InputObject, OutputTarget, local_object
from tfs_proxy.transform.job import ExecutionPlan, Job
from tfs_proxy.transform.leftovers import Leftovers, find_leftovers, log_plan, served_content
from tfs_proxy.transform.local_engine import LocalEngine
from tfs_proxy.transform.options import TransformOptions, fetch_plan, open_endpoint, output_target
from tfs_proxy.transform.ordered_output import OrderedOutput
from tfs_proxy.transform.run_statistics import (
    ObjectReport,
    RunCounts,
    RunStatistics,
    RunStopped,
    StorageError,
    shown_progress,
)
from tfs_proxy.transform.sender import EndpointAddress, Sender
from tfs_proxy.values.errors import SettingsError
from tfs_proxy.values.installation import how_to_install
from tfs_proxy.wire.s3_client import S3_SCHEME

_REMEDY = "give s3:// addresses, or folders that all nodes share."


class Capabilities(Struct, frozen=True):
    """Report of a node that is ready; ``content`` identifies the model that it serves."""

    plan: ExecutionPlan
    content: str


class RunTerms(Struct, frozen=True):
    """Terms that all nodes of a run share, so that an output does not depend on the node that makes it."""

    fingerprint: str
    plan: ExecutionPlan

    def plan_of(self, node: Capabilities) -> ExecutionPlan:
        """The plan of a node: its own concurrency, and the payload and strategy of the whole run."""
        return replace(self.plan, concurrent=node.plan.concurrent)


class SharedStorageProbe(Struct, frozen=True):
    """Files that every node must see: one of the inputs, and a marker file in the output folder."""

    item: InputObject
    marker: Path | None

    def check(self) -> None:
        """Raise SettingsError if this node sees other folders than the machine that made the probe."""
        address = self.item.address
        if not address.startswith(S3_SCHEME) and not self._sees_input():
            raise SettingsError(f"That node does not see the input {address}: {_REMEDY}")
        if self.marker is not None and not self.marker.is_file():
            raise SettingsError(f"That node does not see the output {self.marker.parent}: {_REMEDY}")

    def _sees_input(self) -> bool:
        with contextlib.suppress(SettingsError):
            return local_object(Path(self.item.address), self.item.name).version == self.item.version
        return False


class Node:
    """Starts its stack with the first call; `close` ends it. ``name`` is different for every node.

    Its methods are coroutines because that lets Ray run the calls of an actor concurrently.
    """

    def __init__(self, options: TransformOptions, name: str, probe: SharedStorageProbe) -> None:
        self._options = replace(options, environment=inherited_environment())
        self._name, self._probe = name, probe
        self._stack = contextlib.ExitStack()
        self._endpoint: EndpointAddress | None = None
        self._capabilities: Capabilities | None = None
        self._engine_thread: EngineThread | None = None
        self._lock = threading.Lock()

    async def open(self) -> Capabilities:
        """Serve the model, or find the endpoint. Raises StopServing."""
        return (await asyncio.to_thread(self._opened))[0]

    async def transform(self, item: InputObject, terms: RunTerms) -> ObjectReport:
        """Transform ``item``; its report comes when it is written or failed.

        Raises StopServing if this node can't go on.
        """
        return await asyncio.wrap_future(await asyncio.to_thread(self._add, item, terms))

    async def in_progress(self) -> RunCounts:
        return self._engine_thread.in_progress() if self._engine_thread else RunCounts()

    async def close(self) -> None:
        """Give up unfinished objects without leaving parts of them, and end the stack."""
        await asyncio.to_thread(self._close)

    def _opened(self) -> tuple[Capabilities, EndpointAddress]:
        with self._lock:
            if self._capabilities is None or self._endpoint is None:
                self._probe.check()
                content = served_content(self._options)
                self._endpoint = self._stack.enter_context(open_endpoint(self._options))
                self._capabilities = Capabilities(fetch_plan(self._options.job, self._endpoint), content)
            return self._capabilities, self._endpoint

    def _add(self, item: InputObject, terms: RunTerms) -> "Future[ObjectReport]":
        capabilities, endpoint = self._opened()
        with self._lock:
            if self._engine_thread is None:
                plan = terms.plan_of(capabilities)
                target = output_target(self._options, self._name)
                self._engine_thread = EngineThread(self._options, plan, endpoint, target, terms.fingerprint)
            return self._engine_thread.add(item)

    def _close(self) -> None:
        with self._lock:
            if self._engine_thread is not None:
                self._engine_thread.close()
            self._stack.close()


class EngineThread:
    """An engine on a thread of its own, whose objects are added one by one."""

    def __init__(
        self,
        options: TransformOptions,
        plan: ExecutionPlan,
        endpoint: EndpointAddress,
        target: OutputTarget,
        fingerprint: str,
    ) -> None:
        self._target = target
        self._limit = options.max_bad
        self._fingerprint = fingerprint
        self._requests = RunStatistics()
        self._items: SimpleQueue[InputObject | None] = SimpleQueue()
        self._in_progress: dict[str, tuple[RunStatistics, Future[ObjectReport]]] = {}
        self._end_reason: BaseException | None = None
        self._lock = threading.Lock()
        sender = Sender(endpoint, options.job, plan.concurrent, self._requests)
        self._engine = LocalEngine(options, plan, sender, self._start_output)
        self._thread = threading.Thread(target=self._run, name="engine")
        self._thread.start()

    def add(self, item: InputObject) -> "Future[ObjectReport]":
        """Queue ``item``; its report includes all requests since the report before."""
        report: Future[ObjectReport] = Future()
        with self._lock:
            if self._end_reason is not None:
                report.set_exception(self._end_reason)
            else:
                self._in_progress[item.name] = RunStatistics(), report
                self._items.put(item)
        return report

    def in_progress(self) -> RunCounts:
        """The sum over all unfinished objects, and the requests since the last report."""
        with self._lock:
            unfinished = (statistics.counts for statistics, _ in self._in_progress.values())
            return sum(unfinished, RunCounts(self._requests.counts))

    def close(self) -> None:
        """Give up unfinished objects and wait for the thread."""
        self._engine.stop()
        self._items.put(None)
        self._thread.join()

    def _start_output(self, item: InputObject, release: Callable[[], None]) -> OrderedOutput:
        statistics, _ = self._in_progress[item.name]
        return OrderedOutput(
            item, self._target, self._fingerprint, statistics, release, self._on_end, self._limit
        )

    def _on_end(self, output: OrderedOutput) -> None:
        if output.was_stopped:
            # Wake the engine, which waits for the next object: it ends and raises the reason.
            self._items.put(None)
            return
        with self._lock:
            statistics, report = self._in_progress.pop(output.item.name)
        statistics.merge(self._requests.drain())
        report.set_result(statistics.drain())

    def _run(self) -> None:
        end_reason: BaseException = RunStopped()
        try:
            self._engine.run(iter(self._items.get, None))
        except BaseException as error:  # noqa: BLE001 - every open report raises it
            end_reason = error
        with self._lock:
            self._end_reason = end_reason
            for _, report in self._in_progress.values():
                report.set_exception(end_reason)
            self._in_progress.clear()


def on_cluster(
    options: TransformOptions, items: Sequence[InputObject], target: OutputTarget
) -> RunStatistics:
    """Transform the unfinished of ``items`` on all nodes; returns the statistics of the whole run.

    Outputs and fingerprint are those of a run on one machine, so that either can continue the other.
    Raises SettingsError if Ray or the cluster can't be used, and StopServing if no node can go on.
    """
    try:
        from tfs_proxy.transform.ray_cluster import ray_connection
    except ImportError as error:
        raise SettingsError(
            f"--engine ray needs Ray ({error}): {how_to_install('ray')}, here and on all nodes."
        ) from error
    items = [replace(item, address=_absolute(item.address)) for item in items]
    address = options.ray_address or options.environment.get("RAY_ADDRESS")
    with ray_connection(address), _output_marker(options.job) as marker:
        leftovers = find_leftovers(options, items, target)
        if leftovers.items:
            _distribute(
                _with_absolute_paths(options), leftovers, target, SharedStorageProbe(items[0], marker)
            )
    return leftovers.statistics


def _distribute(
    options: TransformOptions, leftovers: Leftovers, target: OutputTarget, probe: SharedStorageProbe
) -> None:
    from tfs_proxy.transform.ray_cluster import Cluster

    def give_up(item: InputObject, reason: str) -> None:
        output = OrderedOutput(item, target, leftovers.fingerprint, leftovers.statistics, lambda: None)
        output.end_input(StorageError(reason))

    cluster = Cluster(options, probe)
    try:
        plan = cluster.wait_ready().plan
        log_plan(options, plan, leftovers.items)
        terms = RunTerms(leftovers.fingerprint, plan)
        with shown_progress(leftovers.statistics, sys.stderr):
            cluster.transform(leftovers.items, terms, leftovers.statistics, give_up)
    finally:
        cluster.close()


def _absolute(address: str) -> str:
    """``address`` for a process with another working directory."""
    return address if address.startswith(S3_SCHEME) else str(Path(address).resolve())


def _with_absolute_paths(options: TransformOptions) -> TransformOptions:
    job = replace(options.job, input=_absolute(options.job.input), output=_absolute(options.job.output))
    model = None if options.model is None else _absolute(options.model)
    return replace(options, job=job, model=model)


@contextlib.contextmanager
def _output_marker(job: Job) -> Iterator[Path | None]:
    """A file in the output folder that all nodes must see; None if outputs go to S3."""
    if job.output.startswith(S3_SCHEME):
        yield None
        return
    marker = Path(job.output).resolve() / STATE_FOLDER / f"here-{uuid.uuid4().hex}"
    try:
        marker.parent.mkdir(parents=True, exist_ok=True)
        marker.touch()
    except OSError as error:
        raise SettingsError(f"The output {job.output} can't be written: {error.strerror}.") from error
    try:
        yield marker
    finally:
        with contextlib.suppress(OSError):
            marker.unlink()
