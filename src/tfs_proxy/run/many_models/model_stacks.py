"""The serving stacks of all models of a run: when and where each may load, and what they take."""

import itertools
import logging
import time
from collections import deque
from collections.abc import Collection, Iterator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path

from tfs_proxy.observe import catalogue
from tfs_proxy.observe.metric import MeasuredMetric, added_up
from tfs_proxy.observe.request_counts import OTHER
from tfs_proxy.run.host.waiting import in_daemon_thread
from tfs_proxy.run.logs.run_records import RequestCounter
from tfs_proxy.run.many_models.admission import (
    MODEL_SERVER_BYTES,
    MOST_SAMPLES,
    Occupancy,
    StackMemory,
    Turns,
    refusal,
    size_of,
)
from tfs_proxy.run.many_models.model_stack import ModelStack, RunFacts
from tfs_proxy.run.many_models.uses import LastUses, ModelUse
from tfs_proxy.run.nginx.many_models import STACKS
from tfs_proxy.run.process import ChildProcess
from tfs_proxy.values.errors import NameTaken
from tfs_proxy.values.resources import memory_left

log = logging.getLogger(__name__)


class ModelStacks:
    """Creates and lists stacks; ``requests`` counts by model and follows their loads."""

    def __init__(self, run: RunFacts, requests: RequestCounter) -> None:
        self._run = run
        self._requests = requests
        self._stacks: set[ModelStack] = set()
        self._measured: deque[StackMemory] = deque(maxlen=MOST_SAMPLES)
        self._sizes: dict[str, int] = {}
        self._promised: set[str] = set()
        self._loaded: frozenset[int] = frozenset()
        self._past: list[MeasuredMetric] = []
        self._stop_by: float | None = None
        self._served: dict[str, Collection[str]] = {}
        self._last_uses = LastUses(self._requests_of)
        self._turns = Turns(max(1, run.settings.machine.cores - 1))

    def make_folders(self) -> None:
        """Makes the folders of gates and stacks; call it before the first model comes."""
        self._run.gates.make_folders()
        (self._run.workspace.root / STACKS).mkdir()

    def launch(self, name: str, url: str) -> ModelStack:
        """A new stack for the registry, in a folder of its own."""
        home = self._new_home()
        self._promised.discard(name)
        stack = ModelStack(name, url, self._run, home, self, self._sizes.get(name, 0))
        self._stacks.add(stack)
        return stack

    def _new_home(self) -> Path:
        """The folder of the lowest free number: nginx keeps connections to those."""
        folder = self._run.workspace.root / STACKS
        taken = {stack.home for stack in self._stacks}
        numbered = (folder / str(number) for number in itertools.count())
        return next(home for home in numbered if home not in taken and not home.exists())

    async def admit(self, name: str, url: str) -> None:
        """Raises NotEnoughResources if the model does not fit into the memory that is left."""
        size = await in_daemon_thread(partial(size_of, url), "size")
        self._refuse_if_short(name, size)
        self._sizes[name] = size
        self._promised.add(name)

    def _refuse_if_short(self, name: str, size: int) -> None:
        loading = [stack for stack in self._stacks if stack.is_loading]
        occupancy = Occupancy(
            tuple(self._measured),
            [
                *(StackMemory(stack.bytes_on_disk, stack.memory_bytes) for stack in loading),
                *(StackMemory(self._sizes[promised], 0) for promised in self._promised - {name}),
            ],
            memory_left(),
            0 if self._run.servers.have_had_models else MODEL_SERVER_BYTES,
        )
        reason = refusal(name, size, occupancy, self._run.settings.multi_model_memory_margin)
        if reason is not None:
            raise reason

    def lose_model_server(self, index: int) -> None:
        """Makes requests wait for a common model server that has ended."""
        for stack in self._stacks:
            stack.lose_model_server(index)

    def turn(self) -> AbstractAsyncContextManager[object]:
        """Waits for one of the turns to load: one core is left to models that serve."""
        return self._turns.turn()

    def opened(self, stack: ModelStack) -> None:
        """Counts requests for its models from now on. Raises NameTaken if another stack has such a name."""
        for other in self._stacks - {stack}:
            for name in other.names & stack.names:
                raise NameTaken(f"model {stack.name} can't be loaded: {name} is a name of {other.name}")
        self._served[stack.name] = stack.names
        self._last_uses.note_load(stack.name)
        if self._requests.counts.models is not None:
            for name in stack.names:
                self._requests.counts.models.known.add(name, stack.models.get(name, ()))

    def is_served(self, name: str) -> bool:
        """True if a ready model has this name on a model server."""
        return any(name in stack.models for stack in self._stacks if stack.is_ready)

    def ready(self, stack: ModelStack) -> None:
        """Notes what it takes, for estimates of later loads."""
        self._measured.append(StackMemory(stack.bytes_on_disk, stack.memory_bytes, stack.has_workers))
        self._last_uses.note_load(stack.name)

    def gone(self, stack: ModelStack) -> None:
        self._stacks.discard(stack)

    def forget_all_but(self, names: AbstractSet[str]) -> None:
        """Ends the metrics of models that no longer exist; call it often."""
        self._promised &= names
        for name in self._sizes.keys() - names:
            del self._sizes[name]
        for name in self._last_uses.forget_all_but(names):
            for counted_name in self._served.pop(name, ()):
                self._requests.forget(counted_name)

    def uses(self) -> tuple[ModelUse, ...]:
        return tuple(
            ModelUse(stack.name, stack.memory_bytes, self._last_uses.used_at(stack.name), stack.in_use)
            for stack in self._stacks
            if stack.is_ready
        )

    def measure(self) -> Iterator[MeasuredMetric]:
        """Metrics of all, including past ones if the value must not fall."""
        yield from self._past
        for stack in tuple(self._stacks):
            yield from stack.measure()

    def versions(self, name: str) -> Mapping[str, Collection[int]]:
        """The models and versions of the archive loaded as ``name``, once it serves."""
        return next((stack.models for stack in self._stacks if stack.name == name and stack.is_ready), {})

    def stop_until(self, deadline: float) -> None:
        """Makes stacks end by ``deadline``, of `time.monotonic`."""
        self._stop_by = deadline

    def seconds_to_stop(self) -> float:
        """Limit for a stack's requests to end."""
        limit_seconds = self._run.settings.stop_seconds
        if self._stop_by is None:
            return limit_seconds
        return max(0.0, min(limit_seconds, self._stop_by - time.monotonic()))

    def stopped(self, stack: ModelStack) -> None:
        """Keeps what its processes have counted for all models together."""
        self._past = added_up([*self._past, *map(_lasting, stack.measure())])

    def children(self) -> Iterator[ChildProcess]:
        for stack in tuple(self._stacks):
            yield from stack.children()

    def look(self) -> None:
        """Notes which models were asked, and which model servers have theirs; call it often."""
        self._last_uses.look(stack.name for stack in self._stacks)
        loaded = self._run.servers.loaded()
        if loaded != self._loaded:
            self._loaded = loaded
            for stack in self._stacks:
                stack.follow_model_servers()

    def _requests_of(self, name: str) -> int:
        models = self._requests.counts.models
        return 0 if models is None else sum(map(models.requests_of, self._served.get(name, ())))


def _lasting(metric: MeasuredMetric) -> MeasuredMetric:
    """The lasting part of a stack's metric: counts without a label of its model, which must not fall."""
    if metric.description is catalogue.WORKER_STARTS:
        return metric
    kept = {labels: of for labels, of in (metric.distributions or {}).items() if OTHER in labels}
    return MeasuredMetric(metric.description, distributions=kept)
