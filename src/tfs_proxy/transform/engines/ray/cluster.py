"""Distributes the objects of a run over the nodes of a Ray cluster.

Ray starts the actors, restarts one whose process died, and reports when a node is lost; other nodes then
do what that node held. The state of the run is in this process alone.
"""

import contextlib
import logging
import math
import signal
import socket
import time
from collections.abc import Callable, Iterator

import ray
from msgspec import Struct

from tfs_proxy.errors import ServerLost, SettingsError, StopServing
from tfs_proxy.transform.engines.node import Capabilities, RunTerms, SharedStorageProbe
from tfs_proxy.transform.engines.ray.nodes import ClusterNodes, RemoteNode
from tfs_proxy.transform.engines.scheduler import MAX_LOSSES, Scheduler
from tfs_proxy.transform.job import NONE
from tfs_proxy.transform.options import TransformOptions
from tfs_proxy.transform.run_statistics import ObjectReport, RunCounts, RunStatistics
from tfs_proxy.transform.stores.interface import InputObject

CONNECT_SECONDS = 10.0
POLL_SECONDS = 1.0
WAITING_LOG_SECONDS = 60.0

GiveUp = Callable[[InputObject, str], None]
"""Settles an object that no node can do; the text says why."""

log = logging.getLogger(__name__)


class _Run(Struct, frozen=True):
    """What is being distributed, and where its results go."""

    scheduler: Scheduler
    terms: RunTerms
    statistics: RunStatistics
    give_up: GiveUp


class Cluster:
    """All nodes of a run."""

    def __init__(self, options: TransformOptions, probe: SharedStorageProbe) -> None:
        self._options = options
        self._nodes = ClusterNodes(options, probe, self._on_loss)
        self._reference: Capabilities | None = None
        self._refusal: StopServing | None = None
        self._run: _Run | None = None
        self._last_poll = -math.inf

    def wait_ready(self) -> Capabilities:
        """Wait for the first node that is ready; the others have to serve the same model as it.

        Raises StopServing if no node can.
        """
        began, logged = time.monotonic(), 1
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
        statistics.in_progress = RunCounts()

    def close(self) -> None:
        """End all serving stacks."""
        self._nodes.close()

    def _step(self) -> None:
        """Handle the results that have come; from time to time, look for new nodes and poll all."""
        if time.monotonic() >= self._last_poll + POLL_SECONDS:
            self._last_poll = time.monotonic()
            for node in self._nodes.add_new():
                self._open(node)
            self._poll()
        if not len(self._nodes):
            raise self._refusal or ServerLost(
                "The Ray cluster has no node with a CPU left. Finished objects are kept: run the same "
                "command again to continue."
            )
        self._nodes.wait(POLL_SECONDS)

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

        self._nodes.expect(node.actor.open.remote(), node, on_ready)

    def _assign(self, node: RemoteNode) -> None:
        """Give ``node`` as many objects as it has room for."""
        run = self._run
        if run is None or node.capabilities is None:
            return
        plan = run.terms.plan_of(node.capabilities)
        while (item := run.scheduler.take(node.node_id, plan, len(self._nodes))) is not None:
            self._transform(run, node, item)

    def _transform(self, run: _Run, node: RemoteNode, item: InputObject) -> None:
        def on_report(report: ObjectReport) -> None:
            run.statistics.merge(report)
            # The object's counts have moved from the node's progress into the run's statistics.
            node.in_progress -= report.counts
            self._sum_in_progress(run)
            run.scheduler.finish(node.node_id, item)
            self._assign(node)

        self._nodes.expect(node.actor.transform.remote(item, run.terms), node, on_report)

    def _on_loss(self, node: RemoteNode, refusal: StopServing | None) -> None:
        """Give what ``node`` held to the other nodes."""
        self._refusal = refusal or self._refusal
        if self._run is None:
            return
        for item in self._run.scheduler.lose(node.node_id):
            self._run.give_up(item, f"{MAX_LOSSES} nodes were lost while they worked on it")
        for other in self._nodes:
            self._assign(other)

    def _poll(self) -> None:
        """Ask every node how far it is."""
        if self._run is None:
            return
        self._sum_in_progress(self._run)
        for node in self._nodes:
            if node.capabilities is not None and not node.is_polled:
                node.is_polled = True
                self._nodes.expect(node.actor.in_progress.remote(), node, _progress_callback(node))

    def _sum_in_progress(self, run: _Run) -> None:
        run.statistics.in_progress = sum((node.in_progress for node in self._nodes), RunCounts())


def _progress_callback(node: RemoteNode) -> Callable[[RunCounts], None]:
    def on_progress(in_progress: RunCounts) -> None:
        node.in_progress, node.is_polled = in_progress, False

    return on_progress


@contextlib.contextmanager
def ray_connection(address: str | None) -> Iterator[None]:
    """Use the cluster at ``address``, else one that Ray finds, else a new one on this machine.

    Raises SettingsError if it can't be used.
    """
    if address is not None:
        _check_reachable(address)
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


def _check_reachable(address: str) -> None:
    """Raise SettingsError if nothing listens at ``address``.

    ray.init itself would try again for a quarter of an hour and more.
    """
    host, _, port = address.rpartition("://")[2].rpartition(":")
    if not port.isdecimal():  # "auto" and "local" are words of Ray's own
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS).close()
    except OSError as error:
        raise SettingsError(
            f"The Ray cluster {address} can't be reached: {error.strerror or error}."
        ) from error
