"""A Ray cluster as an engine: which node gets which object, and nodes as actors that may be lost."""

import contextlib
import logging
import math
import signal
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

import ray
from msgspec import Struct
from msgspec.structs import replace
from ray.exceptions import RayError, RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from tfs_proxy.transform.files import InputObject
from tfs_proxy.transform.job import NONE
from tfs_proxy.transform.node import MAX_LOSSES, Capabilities, Node, RunTerms, Scheduler, SharedStorageProbe
from tfs_proxy.transform.options import TransformOptions
from tfs_proxy.transform.run_statistics import ObjectReport, RunStatistics
from tfs_proxy.values.errors import ServerLost, SettingsError, StopServing

log = logging.getLogger(__name__)

CONNECT_SECONDS = 10.0
CLOSE_SECONDS = 60.0
LOOK_SECONDS = 1.0
WAITING_LOG_SECONDS = 60.0
MAX_RESTARTS = 2
"""Times that Ray restarts an actor that died on its node, and repeats the calls that it was working on."""
_STACK_SETTINGS = ("SAGEMAKER_", "TFS_")


class RemoteNode(Struct):
    """A node and our actor on it; ``capabilities`` is None until its serving stack is ready."""

    node_id: str
    address: str
    actor: Any
    capabilities: Capabilities | None = None


class ClusterNodes:
    """The nodes that take part: those that the cluster has, and those that join it during the run.

    ``on_loss`` is called with a node that was just removed because a call to it failed; the second
    argument is the error if the node itself refused to go on, None if the node was lost.
    """

    def __init__(
        self,
        options: TransformOptions,
        probe: SharedStorageProbe,
        on_loss: Callable[[RemoteNode, StopServing | None], None],
    ) -> None:
        self._options = options
        self._probe = probe
        self._on_loss = on_loss
        self._nodes: dict[str, RemoteNode] = {}
        self._seen: set[str] = set()
        self._callbacks: dict[Any, Callable[[Any], None]] = {}

    def __iter__(self) -> Iterator[RemoteNode]:
        return iter(list(self._nodes.values()))

    def __len__(self) -> int:
        return len(self._nodes)

    def add_new(self) -> list[RemoteNode]:
        """Start an actor on every node of the cluster that has none yet."""
        added = []
        serves = self._options.model is not None
        # Only the settings of serving stacks: other variables, such as PATH, belong to each machine.
        environment = self._options.environment.items()
        variables = {name: value for name, value in environment if name.startswith(_STACK_SETTINGS)}
        for state in ray.nodes():  # type: ignore[no-untyped-call]
            node_id = state["NodeID"]
            resources = state["Resources"]
            if state["Alive"] and resources.get("CPU", 0) >= 1 and node_id not in self._seen:
                name = f"-ray-{len(self._seen)}"
                self._seen.add(node_id)
                # A serving stack takes all CPUs and GPUs of its node; an actor that only sends takes one CPU.
                actor = (
                    ray.remote(Node)
                    .options(
                        num_cpus=resources["CPU"] if serves else 1,
                        num_gpus=resources.get("GPU", 0) if serves else 0,
                        max_restarts=MAX_RESTARTS,
                        max_task_retries=MAX_RESTARTS,
                        scheduling_strategy=NodeAffinitySchedulingStrategy(node_id, soft=False),
                        runtime_env={"env_vars": variables},
                    )
                    .remote(replace(self._options, environment={}), name, self._probe)
                )
                node = RemoteNode(node_id, state["NodeManagerAddress"], actor)
                self._nodes[node_id] = node
                log.info("node %s of the Ray cluster takes part", node.address)
                added.append(node)
        return added

    def remove(self, node: RemoteNode, reason: str) -> None:
        """Go on without ``node``; results that it still sends are ignored."""
        log.warning("node %s no longer takes part: %s", node.address, reason)
        del self._nodes[node.node_id]
        ray.kill(node.actor)

    def call_back(self, ref: Any, node: RemoteNode, on_result: Callable[[Any], None]) -> None:
        """Have ``on_result`` called with the result of ``ref``, unless ``node`` is removed first."""
        self._callbacks[ref] = lambda done: self._receive(done, node, on_result)

    def wait(self, seconds: float) -> None:
        """Wait at most ``seconds`` for a result, and call the callbacks of all that have come."""
        refs = list(self._callbacks)
        ready, _ = ray.wait(refs, num_returns=1, timeout=seconds)
        if ready:  # more may have come at the same time
            ready, _ = ray.wait(refs, num_returns=len(refs), timeout=0)
        for ref in ready:
            if (callback := self._callbacks.pop(ref, None)) is not None:
                callback(ref)

    def close(self) -> None:
        closing = [node.actor.close.remote() for node in self if node.capabilities]
        if closing:
            ray.wait(closing, num_returns=len(closing), timeout=CLOSE_SECONDS)
        for node in self:
            ray.kill(node.actor)

    def _receive(self, ref: Any, node: RemoteNode, on_result: Callable[[Any], None]) -> None:
        if node.node_id not in self._nodes:
            return
        try:
            result = ray.get(ref)
        except RayTaskError as error:
            if not isinstance(error.cause, StopServing):
                raise
            self.remove(node, str(error.cause))
            self._on_loss(node, error.cause)
        except RayError as error:
            self.remove(node, f"it was lost ({type(error).__name__})")
            self._on_loss(node, None)
        else:
            on_result(result)


GiveUp = Callable[[InputObject, str], None]
"""Settles an object that no node can do; the text says why."""


class _Run(Struct, frozen=True):
    """Objects that are being distributed, and where their results go."""

    scheduler: Scheduler
    terms: RunTerms
    statistics: RunStatistics
    give_up: GiveUp


class Cluster:
    def __init__(self, options: TransformOptions, probe: SharedStorageProbe) -> None:
        self._options = options
        self._nodes = ClusterNodes(options, probe, self._on_loss)
        self._reference: Capabilities | None = None
        self._refusal: StopServing | None = None
        self._run: _Run | None = None
        self._last_look = -math.inf

    def wait_ready(self) -> Capabilities:
        """Wait for the first node that is ready; the others have to serve the same model as it.

        Raises StopServing if no node can.
        """
        began = time.monotonic()
        logged = 1
        while self._reference is None:
            self._step()
            if time.monotonic() > began + logged * WAITING_LOG_SECONDS:
                logged += 1
                log.info("waiting for a node of the cluster with all its CPUs free, and for its stack")
        return self._reference

    def transform(
        self, items: list[InputObject], terms: RunTerms, statistics: RunStatistics, give_up: GiveUp
    ) -> None:
        """Distribute ``items`` until each is done or given up. Raises StopServing if no node is left."""
        scheduler = Scheduler(items, single_request=self._options.job.split_type == NONE)
        self._run = _Run(scheduler, terms, statistics, give_up)
        for node in self._nodes:
            self._assign(node)
        while not scheduler.is_finished:
            self._step()

    def close(self) -> None:
        self._nodes.close()

    def _step(self) -> None:
        """Handle the results that have come; from time to time, look for new nodes."""
        if time.monotonic() >= self._last_look + LOOK_SECONDS:
            self._last_look = time.monotonic()
            for node in self._nodes.add_new():
                self._open(node)
        if not len(self._nodes):
            raise self._refusal or ServerLost(
                "The Ray cluster has no node with a CPU left. Finished objects are kept: run the same "
                "command again to continue."
            )
        self._nodes.wait(LOOK_SECONDS)

    def _open(self, node: RemoteNode) -> None:
        def on_ready(capabilities: Capabilities) -> None:
            if self._reference is None:
                self._reference = capabilities
            if capabilities.content != self._reference.content:
                self._nodes.remove(node, f"it has another model at {self._options.model}")
                self._on_loss(node, None)
                return
            node.capabilities = capabilities
            self._assign(node)

        self._nodes.call_back(node.actor.open.remote(), node, on_ready)

    def _assign(self, node: RemoteNode) -> None:
        run = self._run
        if run is None or node.capabilities is None:
            return
        plan = run.terms.plan_of(node.capabilities)
        while (item := run.scheduler.take(node.node_id, plan, len(self._nodes))) is not None:
            self._transform(run, node, item)

    def _transform(self, run: _Run, node: RemoteNode, item: InputObject) -> None:
        def on_report(report: ObjectReport) -> None:
            run.statistics.merge(report)
            run.scheduler.finish(node.node_id, item)
            self._assign(node)

        self._nodes.call_back(node.actor.transform.remote(item, run.terms), node, on_report)

    def _on_loss(self, node: RemoteNode, refusal: StopServing | None) -> None:
        """Give what ``node`` held to the other nodes."""
        self._refusal = refusal or self._refusal
        if self._run is None:
            return
        for item in self._run.scheduler.lose(node.node_id):
            self._run.give_up(item, f"{MAX_LOSSES} nodes were lost while they worked on it")
        for other in self._nodes:
            self._assign(other)


@contextlib.contextmanager
def ray_connection(address: str | None) -> Iterator[None]:
    """Use the cluster at ``address``, else one that Ray finds, else a new one on this machine.

    Raises SettingsError if it can't be used.
    """
    host, _, port = (address or "").rpartition("://")[2].rpartition(":")
    if port.isdecimal():  # "auto" and "local" are words of Ray's own
        # ray.init itself would try again for a quarter of an hour and more.
        try:
            socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS).close()
        except OSError as error:
            raise SettingsError(
                f"The Ray cluster {address} can't be reached: {error.strerror or error}."
            ) from error
    handler = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(address=address, logging_level=logging.WARNING)
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise SettingsError(f"The Ray cluster {address or ''} can't be used: {error}") from error
    # ray.init replaces the handler with one that would leave serving stacks running.
    signal.signal(signal.SIGTERM, handler)
    try:
        yield
    finally:
        ray.shutdown()
