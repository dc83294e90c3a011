"""`--engine ray`: one actor on each node of a Ray cluster, with a stack of its own, gets object after object.

Ray starts the actors, starts one again whose process died, and says when a node is lost; what that node
held is then done by others. The state of the run is in this process alone.
"""

import asyncio
import contextlib
import logging
import math
import signal
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import ray
from ray.exceptions import RayError, RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from tfs_proxy.errors import ServerLost, SettingsError, StopServing
from tfs_proxy.settings import inherited_environment
from tfs_proxy.transform.engines.node import Ability, Node, Terms, Witness
from tfs_proxy.transform.engines.scheduler import MOST_LOSSES, Spread
from tfs_proxy.transform.job import NONE, Effort
from tfs_proxy.transform.request import Request
from tfs_proxy.transform.stores.interface import InputObject
from tfs_proxy.transform.tally import Counts, Report, Tally

RESTARTS = 2
"""How often Ray starts an actor again on its node, and gives it again what it was doing."""
LOOK_SECONDS = 1.0
CLOSE_SECONDS = 60.0
CONNECT_SECONDS = 10.0
PATIENCE_SECONDS = 60.0
_FOR_STACKS = ("SAGEMAKER_", "TFS_")

log = logging.getLogger(__name__)


class OnNode:
    """The actor: a `Node` whose calls wait beside each other."""

    def __init__(self, request: Request, name: str, witness: Witness) -> None:
        here = replace(request, environment=inherited_environment())
        self._node = Node(here, name, witness)

    async def open(self) -> Ability:
        """As `Node.open`."""
        return await asyncio.to_thread(self._node.open)

    async def transform(self, item: InputObject, terms: Terms) -> Report:
        """As `Node.transform`, but wait for the report."""
        return await asyncio.wrap_future(await asyncio.to_thread(self._node.transform, item, terms))

    async def begun(self) -> Counts:
        """As `Node.begun`."""
        return self._node.begun()

    async def close(self) -> None:
        """As `Node.close`."""
        await asyncio.to_thread(self._node.close)


@dataclass(slots=True)
class _Machine:
    """One node of the cluster and our actor there; ``ability`` is None until its stack is ready."""

    node: str
    address: str
    actor: Any
    ability: Ability | None = None
    begun: Counts = field(default_factory=Counts)
    is_asked: bool = False


class Cluster:
    """All machines of a run: those that the cluster has, and those that join it later."""

    def __init__(self, request: Request, witness: Witness) -> None:
        self._request = request
        self._witness = witness
        self._machines: dict[str, _Machine] = {}
        self._known: set[str] = set()
        self._waits: dict[Any, Callable[[Any], None]] = {}
        self._standard: Ability | None = None
        self._refusal: StopServing | None = None
        self._run: _Run | None = None
        self._looked = -math.inf

    def first(self) -> Ability:
        """Wait for a machine that is ready: what it says holds for all. Raises StopServing if none can be."""
        began, shown = time.monotonic(), 1
        while self._standard is None:
            self._step()
            if time.monotonic() > began + shown * PATIENCE_SECONDS:
                shown += 1
                log.info("waiting for a node of the cluster with all its CPUs free, and for its stack")
        return self._standard

    def transform(self, items: list[InputObject], terms: Terms, tally: Tally, give_up: "GiveUp") -> None:
        """Spread ``items``; ``give_up`` settles what nobody can do. Raises StopServing if none is left."""
        whole = self._request.job.split_type == NONE
        self._run = _Run(Spread(items, whole=whole), terms, tally, give_up)
        for machine in list(self._machines.values()):
            self._fill(machine)
        while not self._run.spread.is_over:
            self._step()
        tally.begun = Counts()

    def close(self) -> None:
        """End all stacks, as far as their machines are still there."""
        closing = [machine.actor.close.remote() for machine in self._machines.values() if machine.ability]
        if closing:
            ray.wait(closing, num_returns=len(closing), timeout=CLOSE_SECONDS)
        for machine in self._machines.values():
            ray.kill(machine.actor)

    def _step(self) -> None:
        """Hear what has come meanwhile; from time to time, look for new nodes and how far all are."""
        if time.monotonic() >= self._looked + LOOK_SECONDS:
            self._looked = time.monotonic()
            self._recruit()
            self._ask_how_far()
        if not self._machines:
            raise self._refusal or ServerLost(
                "The Ray cluster has no node with a CPU left. What is finished stays so: the same command "
                "goes on from there."
            )
        waits = list(self._waits)
        ready, _ = ray.wait(waits, num_returns=1, timeout=LOOK_SECONDS)
        if ready:
            ready, _ = ray.wait(waits, num_returns=len(waits), timeout=0)
        for each in ready:
            if (hear := self._waits.pop(each, None)) is not None:
                hear(each)

    def _recruit(self) -> None:
        for node in ray.nodes():  # type: ignore[no-untyped-call]
            cpus = node["Resources"].get("CPU", 0)
            if node["Alive"] and cpus >= 1 and node["NodeID"] not in self._known:
                self._hire(node["NodeID"], node["NodeManagerAddress"], cpus, node["Resources"].get("GPU", 0))

    def _hire(self, node: str, address: str, cpus: float, gpus: float) -> None:
        """A stack takes its whole node; who only sends to an endpoint takes one CPU."""
        name = f"-ray-{len(self._known)}"
        self._known.add(node)
        owns = self._request.model is not None
        actor: Any = (
            ray.remote(OnNode)
            .options(
                num_cpus=cpus if owns else 1,
                num_gpus=gpus if owns else 0,
                max_restarts=RESTARTS,
                max_task_retries=RESTARTS,
                scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False),
                runtime_env={"env_vars": _for_stacks(self._request.environment)},
            )
            .remote(replace(self._request, environment={}), name, self._witness)
        )
        machine = _Machine(node, address, actor)
        self._machines[node] = machine
        log.info("node %s of the Ray cluster takes part", address)
        self._wait(actor.open.remote(), machine, lambda ability: self._opened(machine, ability))

    def _wait(self, ref: Any, machine: _Machine, hear: Callable[[Any], None]) -> None:
        """Have ``hear`` called with the result, unless ``machine`` is lost first."""

        def come(done: Any) -> None:
            if machine.node not in self._machines:
                return
            try:
                result = ray.get(done)
            except RayTaskError as error:
                if not isinstance(error.cause, StopServing):
                    raise
                self._refusal = error.cause
                self._lose(machine, str(error.cause))
            except RayError as error:
                self._lose(machine, f"it is lost ({type(error).__name__})")
            else:
                hear(result)

        self._waits[ref] = come

    def _opened(self, machine: _Machine, ability: Ability) -> None:
        if self._standard is None:
            self._standard = ability
        if ability.content != self._standard.content:
            self._lose(machine, f"the model {self._request.model} is another one there")
            return
        machine.ability = ability
        if self._run is not None:
            self._fill(machine)

    def _fill(self, machine: _Machine) -> None:
        run = self._run
        if run is None or machine.ability is None:
            return
        effort = run.effort_of(machine.ability)
        while (item := run.spread.take(machine.node, effort, len(self._machines))) is not None:
            ref = machine.actor.transform.remote(item, run.terms)
            self._wait(ref, machine, lambda report, item=item: self._done(machine, item, report))  # type: ignore[misc]

    def _done(self, machine: _Machine, item: InputObject, report: Report) -> None:
        assert self._run is not None  # noqa: S101 - it has begun, or nothing would be done
        self._run.tally.merge(report)
        machine.begun = Counts(
            records=max(0, machine.begun.records - report.counts.records),
            bytes=max(0, machine.begun.bytes - report.counts.bytes),
        )
        self._sum_begun()
        self._run.spread.end(machine.node, item)
        self._fill(machine)

    def _lose(self, machine: _Machine, why: str) -> None:
        """Go on without ``machine``."""
        log.warning("node %s takes no part any more: %s", machine.address, why)
        del self._machines[machine.node]
        ray.kill(machine.actor)
        if self._run is None:
            return
        for item in self._run.spread.lose(machine.node):
            self._run.give_up(item, f"{MOST_LOSSES} nodes were lost while they worked on it")
        for other in self._machines.values():
            self._fill(other)

    def _ask_how_far(self) -> None:
        if self._run is None:
            return
        self._sum_begun()
        for machine in self._machines.values():
            if machine.ability is not None and not machine.is_asked:
                self._ask(machine)

    def _sum_begun(self) -> None:
        assert self._run is not None  # noqa: S101 - it has begun
        every = [machine.begun for machine in self._machines.values()]
        self._run.tally.begun = Counts(
            records=sum(each.records for each in every), bytes=sum(each.bytes for each in every)
        )

    def _ask(self, machine: _Machine) -> None:
        def hear(begun: Counts) -> None:
            machine.begun, machine.is_asked = begun, False

        machine.is_asked = True
        self._wait(machine.actor.begun.remote(), machine, hear)


GiveUp = Callable[[InputObject, str], None]


@dataclass(frozen=True, slots=True)
class _Run:
    """What is being spread, and who hears of it."""

    spread: Spread
    terms: Terms
    tally: Tally
    give_up: GiveUp

    def effort_of(self, ability: Ability) -> Effort:
        """How a machine drives this run: its own concurrency, payload and strategy of all."""
        return replace(ability.effort, strategy=self.terms.strategy, payload_bytes=self.terms.payload_bytes)


@contextlib.contextmanager
def connected(address: str | None) -> Iterator[None]:
    """A Ray cluster to run on: the one at ``address``, else what Ray finds, else one on this machine.

    Raises SettingsError.
    """
    if address is not None:
        _check_answers(address)
    before = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(address=address, logging_level=logging.WARNING)
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise SettingsError(f"The Ray cluster {address or ''} can't be used: {error}") from error
    signal.signal(signal.SIGTERM, before)  # Ray has put its own there, which leaves stacks behind
    try:
        yield
    finally:
        ray.shutdown()


def _check_answers(address: str) -> None:
    """Raise SettingsError where nobody listens: Ray itself would try for a quarter of an hour and more."""
    host, _, port = address.rpartition("://")[2].rpartition(":")
    if not port.isdecimal():  # "auto" and "local" are Ray's own words
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS).close()
    except OSError as error:
        raise SettingsError(
            f"The Ray cluster {address} can't be reached: {error.strerror or error}."
        ) from error


def _for_stacks(environment: Mapping[str, str]) -> dict[str, str]:
    """The settings that are for stacks wherever they run; the rest of an environment is a machine's own."""
    return {name: value for name, value in environment.items() if name.startswith(_FOR_STACKS)}
