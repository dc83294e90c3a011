"""The registry of models: loads, unloads and waits, each model by a task of its own."""

import asyncio
from collections import Counter
from collections.abc import Iterator, KeysView
from functools import partial

from msgspec import Struct

from tfs_proxy.observe import catalogue
from tfs_proxy.observe.metric import MeasuredMetric
from tfs_proxy.run.many_models.model_life import Admit, Launch, LoadCounts, ModelLife
from tfs_proxy.run.readiness import StackState
from tfs_proxy.values.errors import (
    AlreadyLoaded,
    Draining,
    ModelNotReady,
    NotEnoughResources,
    TfsProxyError,
    UnknownModel,
)

LOADED_STATES = frozenset({StackState.READY, StackState.FAILED})
"""A failed model is still loaded: it is being restarted."""

DRAINING = "stopping: all models are being unloaded"


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
        self._current: dict[str, ModelLife] = {}
        self._tasks: dict[ModelLife, asyncio.Task[None]] = {}
        self._draining = False

    async def load(self, name: str, url: str) -> None:
        """Loads the model at ``url``; returns once it answers requests.

        Raises AlreadyLoaded at once if there is a model of this name, unless it is being unloaded: then the
        load begins after that. Raises NotEnoughResources, ModelNotReady if the model was unloaded
        meanwhile, Draining, and otherwise what `load_failure` makes of the reason, when nothing is left
        of the attempt.
        """
        try:
            life = self._begin(name, url)
        except TfsProxyError as refused:
            self.counts.failed(refused)
            raise
        await _until_loaded(life)

    async def unload(self, name: str) -> None:
        """Unloads the model; returns when everything is gone.

        Cancels a load under way. Concurrent calls all wait for the same end. Raises UnknownModel, or
        Draining.
        """
        self._refuse_if_draining()
        life = self._find(name)
        life.ask_to_unload(ModelNotReady(f"model {name} was unloaded while it was loading"))
        await life.gone.wait()

    async def ready(self, name: str, timeout_seconds: float) -> None:
        """Returns if the model answers requests; waits at most so long for one that is loading.

        Raises UnknownModel; ModelNotReady with the reason if it has failed, is being unloaded or is loading
        still; Draining; and what `load` raises if the load fails meanwhile.
        """
        self._refuse_if_draining()
        life = self._find(name)
        if life.state is StackState.STARTING:
            try:
                async with asyncio.timeout(timeout_seconds):
                    await _until_loaded(life)
            except TimeoutError:
                raise ModelNotReady(f"model {name} is still loading") from None
        if life.state is StackState.FAILED:
            raise ModelNotReady(f"model {name} has failed and is being started again: {life.reason}")
        if life.state is not StackState.READY:
            raise ModelNotReady(f"model {name} is {life.state.of_model}")

    def get(self, name: str) -> ListedModel:
        """The model in any state. Raises UnknownModel."""
        return _listed(self._find(name))

    def list(self) -> tuple[ListedModel, ...]:
        """Loaded models by name: those that are ready, or have failed since."""
        models = (_listed(self._current[name]) for name in sorted(self._current))
        return tuple(model for model in models if model.is_loaded)

    def all(self) -> tuple[ListedModel, ...]:
        return tuple(_listed(self._current[name]) for name in sorted(self._current))

    @property
    def names(self) -> KeysView[str]:
        return self._current.keys()

    def measure(self) -> Iterator[MeasuredMetric]:
        states = Counter((model.state.of_model,) for model in self.all())
        yield MeasuredMetric(
            catalogue.LOADED_MODELS, {(state.of_model,): states[state.of_model,] for state in StackState}
        )
        yield from self.counts.measure()

    def begin_draining(self) -> None:
        """Loads no more: `load`, `unload` and `ready` raise Draining, also in calls that wait for a load."""
        self._draining = True
        for life in tuple(self._tasks):
            if life.state is StackState.STARTING:
                life.ask_to_unload(Draining(DRAINING))

    async def close(self) -> None:
        """Unloads all models at once; returns when everything is gone. Idempotent.

        From here on `load`, `unload` and `ready` raise Draining, also in calls that wait for a load.
        """
        self.begin_draining()
        leaving = tuple(self._tasks)
        for life in leaving:
            life.ask_to_unload(Draining(DRAINING))
        for life in leaving:
            await life.gone.wait()

    def _begin(self, name: str, url: str) -> ModelLife:
        self._refuse_if_draining()
        before = self._current.get(name)
        if before is not None and before.state is not StackState.STOPPING:
            being = "being loaded" if before.state is StackState.STARTING else "loaded"
            raise AlreadyLoaded(f"model {name} is {being} already, from {before.url}")
        others = {life.name for life in self._tasks} - {name}
        if self._limit is not None and len(others) >= self._limit:
            raise NotEnoughResources(
                f"model {name} can't be loaded: there are {len(others)} models, as many as "
                f"TFS_PROXY_MAX_LOADED_MODELS={self._limit} allows. Unload one, or allow more."
            )
        life = self._current[name] = ModelLife(
            name,
            url,
            launch=partial(self._launch, name, url),
            admit=partial(self._admit, name, url),
            counts=self.counts,
            ended=self._forget,
            after=before,
        )
        self._tasks[life] = asyncio.create_task(life.run(), name=f"model {name}")
        return life

    def _forget(self, life: ModelLife) -> None:
        del self._tasks[life]
        if self._current.get(life.name) is life:
            del self._current[life.name]
            self.counts.restarts.pop(life.name, None)

    def _find(self, name: str) -> ModelLife:
        if name not in self._current:
            raise UnknownModel(f"model {name} is not loaded")
        return self._current[name]

    def _refuse_if_draining(self) -> None:
        if self._draining:
            raise Draining(DRAINING)


async def _until_loaded(life: ModelLife) -> None:
    await life.settled.wait()
    if life.failure is not None:
        raise life.failure


def _listed(life: ModelLife) -> ListedModel:
    return ListedModel(life.name, life.url, life.state, life.reason)
