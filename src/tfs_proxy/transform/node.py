"""A job that several nodes share: which node gets which object, and its serving stack and engine."""

import asyncio
import contextlib
import threading
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Collection, Iterable
from concurrent.futures import Future
from pathlib import Path
from queue import SimpleQueue

from msgspec import Struct
from msgspec.structs import replace

from tfs_proxy.settings.settings import inherited_environment
from tfs_proxy.transform.files import InputObject, local_object
from tfs_proxy.transform.job import ExecutionPlan
from tfs_proxy.transform.leftovers import served_content
from tfs_proxy.transform.local_engine import LocalEngine
from tfs_proxy.transform.options import TransformOptions, fetch_plan, open_endpoint, output_target
from tfs_proxy.transform.ordered_output import OrderedOutput
from tfs_proxy.transform.run_statistics import ObjectReport, RunStatistics, RunStopped
from tfs_proxy.transform.s3 import OutputTarget
from tfs_proxy.transform.sender import EndpointAddress, Sender
from tfs_proxy.values.errors import SettingsError
from tfs_proxy.wire.s3_client import S3_SCHEME

READ_AHEAD = 2
"""A node holds at least so many objects: it reads the next during the last requests of the one before."""
MAX_LOSSES = 3

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
        self._name = name
        self._probe = probe
        self._stack = contextlib.ExitStack()
        self._served: tuple[Capabilities, EndpointAddress] | None = None
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

    async def close(self) -> None:
        """Give up unfinished objects without leaving parts of them, and end the stack."""
        await asyncio.to_thread(self._close)

    def _opened(self) -> tuple[Capabilities, EndpointAddress]:
        with self._lock:
            if self._served is None:
                self._probe.check()
                content = served_content(self._options)
                endpoint = self._stack.enter_context(open_endpoint(self._options))
                self._served = Capabilities(fetch_plan(self._options.job, endpoint), content), endpoint
            return self._served

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
        self._unfinished: dict[str, tuple[RunStatistics, Future[ObjectReport]]] = {}
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
                self._unfinished[item.name] = RunStatistics(), report
                self._items.put(item)
        return report

    def close(self) -> None:
        """Give up unfinished objects and wait for the thread."""
        self._engine.stop()
        self._items.put(None)
        self._thread.join()

    def _start_output(self, item: InputObject, release: Callable[[], None]) -> OrderedOutput:
        statistics, _ = self._unfinished[item.name]
        return OrderedOutput(
            item, self._target, self._fingerprint, statistics, release, self._on_end, self._limit
        )

    def _on_end(self, output: OrderedOutput) -> None:
        if output.was_stopped:
            # Wake the engine, which waits for the next object: it ends and raises the reason.
            self._items.put(None)
            return
        with self._lock:
            statistics, report = self._unfinished.pop(output.item.name)
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
            for _, report in self._unfinished.values():
                report.set_exception(end_reason)
            self._unfinished.clear()


class Scheduler:
    """The objects of a run that several nodes share: each is waiting, held by one node, or finished.

    ``single_request`` says that an object is one request.
    """

    def __init__(self, items: Iterable[InputObject], *, single_request: bool) -> None:
        self._waiting = deque(sorted(items, key=lambda item: (-item.size, item.name)))
        self._single_request = single_request
        self._held: defaultdict[str, dict[str, InputObject]] = defaultdict(dict)
        self._losses: Counter[str] = Counter()

    @property
    def is_finished(self) -> bool:
        return not self._waiting and not any(self._held.values())

    def take(self, node: str, plan: ExecutionPlan, node_count: int) -> InputObject | None:
        """The largest waiting object, if ``node``, one of ``node_count``, can begin with it soon."""
        if not self._waiting or not self._has_room(self._held[node].values(), plan, node_count):
            return None
        item = self._waiting.popleft()
        self._held[node][item.name] = item
        return item

    def finish(self, node: str, item: InputObject) -> None:
        self._held[node].pop(item.name, None)

    def lose(self, node: str) -> list[InputObject]:
        """Put what ``node`` held back, except objects that have lost `MAX_LOSSES` nodes: return those."""
        held = self._held.pop(node, {}).values()
        self._losses.update(item.name for item in held)
        given_up = [item for item in held if self._losses[item.name] >= MAX_LOSSES]
        self._waiting.extendleft(item for item in held if self._losses[item.name] < MAX_LOSSES)
        return given_up

    def _has_room(self, held: Collection[InputObject], plan: ExecutionPlan, node_count: int) -> bool:
        """True if a node holds less than it can have in flight and in its queue."""
        minimum = plan.concurrent if self._single_request else READ_AHEAD
        if len(held) < minimum:
            return True
        batches = 2 * plan.concurrent
        # Near the end a node gets only what keeps it busy: the rest goes to the node that is free first.
        fair_share = len(self._waiting) // (2 * node_count)
        if len(held) >= min(batches, fair_share):
            return False
        return plan.payload_bytes is None or sum(item.size for item in held) < batches * plan.payload_bytes
