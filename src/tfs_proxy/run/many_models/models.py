"""All models of a run: loads, unloads and waits, each model in a task of its own; and their stacks.

`ModelRegistry` knows the models by name. `ModelStacks` makes the stack of each, if there is memory for it.
"""

import asyncio
import itertools
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Collection, Iterator, KeysView, Mapping
from collections.abc import Set as AbstractSet
from functools import partial
from pathlib import Path

from msgspec import Struct

from tfs_proxy.observe import catalogue
from tfs_proxy.observe.metric import MeasuredMetric
from tfs_proxy.run.host.waiting import in_daemon_thread
from tfs_proxy.run.logs.run_records import RunRecords
from tfs_proxy.run.many_models.admission import (
    MODEL_SERVER_BYTES,
    MOST_SAMPLES,
    Occupancy,
    StackMemory,
    refusal,
    size_of,
)
from tfs_proxy.run.many_models.model import LoadCounts, Model
from tfs_proxy.run.many_models.model_stack import ModelStack, RunFacts
from tfs_proxy.run.many_models.uses import LastUses, ModelUse, ServedCounts
from tfs_proxy.run.nginx.many_models import STACKS
from tfs_proxy.run.process import ChildProcess
from tfs_proxy.run.readiness import StackState
from tfs_proxy.values.errors import (
    AlreadyLoaded,
    Draining,
    ModelNotReady,
    NameTaken,
    NotEnoughResources,
    TfsProxyError,
    UnknownModel,
)
from tfs_proxy.values.resources import memory_left

LOADED_STATES = frozenset({StackState.READY, StackState.FAILED})
"""A failed model is still loaded: it is being restarted."""

DRAINING = "stopping: all models are being unloaded"

Launch = Callable[[str, str], ModelStack]
"""Makes the stack of a model from its name and its url, which is a local path; `start` does the rest."""

Admit = Callable[[str, str], Awaitable[None]]
"""Raises NotEnoughResources if the model of this name and url does not fit; called just before its start."""


class ListedModel(Struct, frozen=True):
    """A model in the registry at one moment; ``reason`` says why, if it has failed."""

    name: str
    url: str
    state: StackState
    reason: str = ""

    @property
    def is_loaded(self) -> bool:
        """True if it was loaded successfully and nobody has unloaded it since."""
        return self.state in LOADED_STATES


class ModelRegistry:
    """All models of a run, each with a state machine of its own; no call waits for another model's.

    ``limit`` counts models that load and unload, too; None is no limit. Calls may
    be cancelled at any time: what they have begun goes on. ``counts`` are for metrics.
    """

    def __init__(self, launch: Launch, limit: int | None, admit: Admit) -> None:
        self.counts = LoadCounts()
        self._launch, self._limit, self._admit = launch, limit, admit
        self._current: dict[str, Model] = {}
        self._tasks: dict[Model, asyncio.Task[None]] = {}
        self._draining = False

    async def load(self, name: str, url: str) -> None:
        """Loads the model at ``url``; returns once it answers requests.

        Raises AlreadyLoaded at once if there is a model of this name, unless it is being unloaded: then the
        load begins after that. Raises NotEnoughResources, ModelNotReady if the model was unloaded
        meanwhile, Draining, and otherwise what `load_failure` makes of the reason, when nothing is left
        of the attempt.
        """
        try:
            model = self._begin(name, url)
        except TfsProxyError as refused:
            self.counts.failed(refused)
            raise
        await model.loaded()

    async def unload(self, name: str) -> None:
        """Unloads the model; returns when everything is gone.

        Cancels a load under way. Concurrent calls all wait for the same end. Raises UnknownModel, or
        Draining.
        """
        self._refuse_if_draining()
        model = self._find(name)
        model.unload(ModelNotReady(f"model {name} was unloaded while it was loading"))
        await model.gone.wait()

    async def ready(self, name: str, timeout_seconds: float) -> None:
        """Returns if the model answers requests; waits at most so long for one that is loading.

        Raises UnknownModel; ModelNotReady with the reason if it has failed, is being unloaded or is loading
        still; Draining; and what `load` raises if the load fails meanwhile.
        """
        self._refuse_if_draining()
        model = self._find(name)
        if model.state is StackState.STARTING:
            try:
                async with asyncio.timeout(timeout_seconds):
                    await model.loaded()
            except TimeoutError:
                raise ModelNotReady(f"model {name} is still loading") from None
        if model.state is StackState.FAILED:
            raise ModelNotReady(f"model {name} has failed and is being started again: {model.reason}")
        if model.state is not StackState.READY:
            raise ModelNotReady(f"model {name} is {model.state.of_model}")

    def get(self, name: str) -> ListedModel:
        """The model in any state. Raises UnknownModel."""
        return _listed(self._find(name))

    def list(self) -> tuple[ListedModel, ...]:
        """Loaded models by name: those that are ready, or have failed since."""
        return tuple(model for model in self.all() if model.is_loaded)

    def all(self) -> tuple[ListedModel, ...]:
        return tuple(_listed(self._current[name]) for name in sorted(self._current))

    @property
    def names(self) -> KeysView[str]:
        return self._current.keys()

    def measure(self) -> Iterator[MeasuredMetric]:
        states = Counter((model.state.of_model,) for model in self._current.values())
        yield MeasuredMetric(
            catalogue.LOADED_MODELS, {(state.of_model,): states[state.of_model,] for state in StackState}
        )
        yield from self.counts.measure()

    def begin_draining(self) -> None:
        """Loads no more: `load`, `unload` and `ready` raise Draining, also in calls that wait for a load."""
        self._draining = True
        for model in tuple(self._tasks):
            if model.state is StackState.STARTING:
                model.unload(Draining(DRAINING))

    async def close(self) -> None:
        """Unloads all models at once, after `begin_draining`; returns when everything is gone. Idempotent."""
        self.begin_draining()
        leaving = tuple(self._tasks)
        for model in leaving:
            model.unload(Draining(DRAINING))
        for model in leaving:
            await model.gone.wait()

    def _begin(self, name: str, url: str) -> Model:
        self._refuse_if_draining()
        before = self._current.get(name)
        if before is not None and before.state is not StackState.STOPPING:
            being = "being loaded" if before.state is StackState.STARTING else "loaded"
            raise AlreadyLoaded(f"model {name} is {being} already, from {before.url}")
        others = {model.name for model in self._tasks} - {name}
        if self._limit is not None and len(others) >= self._limit:
            raise NotEnoughResources(
                f"model {name} can't be loaded: there are {len(others)} models, as many as "
                f"TFS_PROXY_MAX_LOADED_MODELS={self._limit} allows. Unload one, or allow more."
            )
        model = self._current[name] = Model(
            name,
            url,
            launch=partial(self._launch, name, url),
            admit=partial(self._admit, name, url),
            counts=self.counts,
            ended=self._forget,
            after=before,
        )
        self._tasks[model] = asyncio.create_task(model.live(), name=f"model {name}")
        return model

    def _forget(self, model: Model) -> None:
        del self._tasks[model]
        if self._current.get(model.name) is model:
            del self._current[model.name]
            self.counts.restarts.pop(model.name, None)

    def _find(self, name: str) -> Model:
        if name not in self._current:
            raise UnknownModel(f"model {name} is not loaded")
        return self._current[name]

    def _refuse_if_draining(self) -> None:
        if self._draining:
            raise Draining(DRAINING)


def _listed(model: Model) -> ListedModel:
    return ListedModel(model.name, model.url, model.state, model.reason)


class ModelStacks:
    """Makes stacks for the registry, and knows their memory, uses and metrics.

    ``records`` counts requests by model and follows their loads.
    """

    def __init__(self, run: RunFacts, records: RunRecords) -> None:
        self._run = run
        self._records = records
        self._stacks: set[ModelStack] = set()
        self._measured: deque[StackMemory] = deque(maxlen=MOST_SAMPLES)
        self._sizes: dict[str, int] = {}
        self._promised: set[str] = set()
        self._stop_by: float | None = None
        self._served: dict[str, Collection[str]] = {}
        self.served_counts = ServedCounts()
        self._last_uses = LastUses(self._requests_of)

    def make_folders(self) -> None:
        """Makes the folders of gates and stacks; call it before the first model comes."""
        self._run.gates.make_folders()
        (self._run.workspace.root / STACKS).mkdir()

    def launch(self, name: str, url: str) -> ModelStack:
        """A new stack, in the folder of the lowest free number: nginx keeps connections to those."""
        folder = self._run.workspace.root / STACKS
        taken = {stack.home for stack in self._stacks}
        numbered: Iterator[Path] = (folder / str(number) for number in itertools.count())
        home = next(home for home in numbered if home not in taken and not home.exists())
        self._promised.discard(name)
        stack = ModelStack(name, url, self._run, home, self, self._sizes.get(name, 0))
        self._stacks.add(stack)
        return stack

    async def admit(self, name: str, url: str) -> None:
        """Raises NotEnoughResources if the model does not fit into the memory that is left."""
        size = await in_daemon_thread(partial(size_of, url), "size")
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
        self._sizes[name] = size
        self._promised.add(name)

    def opened(self, stack: ModelStack) -> None:
        """Counts requests for its models from now on. Raises NameTaken if another stack has such a name."""
        for other in self._stacks - {stack}:
            for name in other.names & stack.names:
                raise NameTaken(f"model {stack.name} can't be loaded: {name} is a name of {other.name}")
        self._served[stack.name] = stack.names
        self._last_uses.note_load(stack.name)
        if self._records.counts.models is not None:
            for name in stack.names:
                self._records.counts.models.known.add(name, stack.models.get(name, ()))

    def ready(self, stack: ModelStack) -> None:
        """Notes what it takes, for estimates of later loads."""
        self._measured.append(StackMemory(stack.bytes_on_disk, stack.memory_bytes, stack.has_workers))
        self._last_uses.note_load(stack.name)

    def gone(self, stack: ModelStack) -> None:
        self._stacks.discard(stack)

    def lose_model_server(self, index: int) -> None:
        """Makes requests wait for a common model server that has ended."""
        for stack in self._stacks:
            stack.lose_model_server(index)

    def is_served(self, name: str) -> bool:
        """True if a ready model has this name on a model server."""
        return any(name in stack.models for stack in self._stacks if stack.is_ready)

    def versions(self, name: str) -> Mapping[str, Collection[int]]:
        """The models and versions of the archive loaded as ``name``, once it serves."""
        return next((stack.models for stack in self._stacks if stack.name == name and stack.is_ready), {})

    def uses(self) -> tuple[ModelUse, ...]:
        return tuple(
            ModelUse(stack.name, stack.memory_bytes, self._last_uses.used_at(stack.name), stack.in_use)
            for stack in self._stacks
            if stack.is_ready
        )

    def measure(self) -> Iterator[MeasuredMetric]:
        for stack in tuple(self._stacks):
            yield from stack.measure()

    def stop_until(self, deadline: float) -> None:
        """Makes stacks end by ``deadline``, of `time.monotonic`."""
        self._stop_by = deadline

    def seconds_to_stop(self) -> float:
        """Limit for a stack's requests to end."""
        limit_seconds = self._run.settings.stop_seconds
        if self._stop_by is None:
            return limit_seconds
        return max(0.0, min(limit_seconds, self._stop_by - time.monotonic()))

    def children(self) -> Iterator[ChildProcess]:
        for stack in tuple(self._stacks):
            yield from stack.children()

    def look(self, names: AbstractSet[str]) -> None:
        """Notes which models were asked; call it often.

        Ends the metrics of models that are not among ``names``, the registry's, any more.
        """
        self._last_uses.look(stack.name for stack in self._stacks)
        self._promised &= names
        for name in self._sizes.keys() - names:
            del self._sizes[name]
        for name in self._last_uses.forget_all_but(names):
            for counted_name in self._served.pop(name, ()):
                self._records.forget(counted_name)

    def _requests_of(self, name: str) -> int:
        names, models = self._served.get(name, ()), self._records.counts.models
        seen = 0 if models is None else sum(map(models.requests_of, names))
        return seen + self.served_counts.of(names)
