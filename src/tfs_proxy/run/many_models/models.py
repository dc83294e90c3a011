"""All models of a run by name: loads, unloads and waits, each model in a task of its own."""

import asyncio
import math
from collections import Counter
from collections.abc import Iterator, KeysView

from tfs_proxy.observe import catalogue
from tfs_proxy.observe.metric import MeasuredMetric
from tfs_proxy.run.many_models.model import Admit, Launch, LoadCounts, Model
from tfs_proxy.run.readiness import StackState
from tfs_proxy.values.errors import (
    AlreadyLoaded,
    Draining,
    ModelNotReady,
    NotEnoughResources,
    TfsProxyError,
    UnknownModel,
)

DRAINING = "stopping: all models are being unloaded"


class ModelRegistry:
    """All models of a run, each living in a task of its own; no call waits for another model's.

    ``limit`` counts models that load and unload, too; None is no limit. Calls may
    be cancelled at any time: what they have begun goes on. ``counts`` are for metrics.
    """

    def __init__(self, launch: Launch, limit: int | None, admit: Admit) -> None:
        self.counts = LoadCounts()
        self._launch = launch
        self._limit = limit
        self._admit = admit
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
        before = self._current.get(name)
        try:
            self._refuse_if_draining()
            if before is not None and before.state is not StackState.STOPPING:
                being = "being loaded" if before.state is StackState.STARTING else "loaded"
                raise AlreadyLoaded(f"model {name} is {being} already, from {before.url}")
            others = {model.name for model in self._tasks} - {name}
            if self._limit is not None and len(others) >= self._limit:
                raise NotEnoughResources(
                    f"model {name} can't be loaded: there are {len(others)} models, as many as "
                    f"TFS_PROXY_MAX_LOADED_MODELS={self._limit} allows. Unload one, or allow more."
                )
        except TfsProxyError as refused:
            self.counts.failed(refused)
            raise

        def forget(model: Model) -> None:
            del self._tasks[model]
            if self._current.get(name) is model:
                del self._current[name]
                self.counts.restarts.pop(name, None)

        model = self._current[name] = Model(
            name,
            url,
            launch=self._launch,
            admit=self._admit,
            counts=self.counts,
            ended=forget,
            after=before,
        )
        self._tasks[model] = asyncio.create_task(model.live(), name=f"model {name}")
        await model.loaded()

    async def unload(self, name: str) -> None:
        """Unloads the model; returns when everything is gone.

        Cancels a load under way. Concurrent calls all wait for the same end. Raises UnknownModel, or
        Draining.
        """
        self._refuse_if_draining()
        model = self.get(name)
        model.unload(ModelNotReady(f"model {name} was unloaded while it was loading"))
        await model.gone.wait()

    async def ready(self, name: str, timeout_seconds: float) -> None:
        """Returns if the model answers requests; waits at most so long for one that is loading.

        Raises UnknownModel; ModelNotReady with the reason if it has failed, is being unloaded or is loading
        still; Draining; and what `load` raises if the load fails meanwhile.
        """
        self._refuse_if_draining()
        model = self.get(name)
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

    def get(self, name: str) -> Model:
        """The model in any state. Raises UnknownModel."""
        if name not in self._current:
            raise UnknownModel(f"model {name} is not loaded")
        return self._current[name]

    def has(self, name: str) -> bool:
        """True if there is a model of this name that is not being unloaded."""
        return name in self._current and self._current[name].state is not StackState.STOPPING

    def list(self) -> tuple[Model, ...]:
        """Loaded models by name: those that are ready, or have failed since."""
        return tuple(model for model in self.all() if model.is_loaded)

    def all(self) -> tuple[Model, ...]:
        return tuple(self._current[name] for name in sorted(self._current))

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

    async def close(self, stop_by: float = math.inf) -> None:
        """Unloads all models at once, after `begin_draining`; returns when everything is gone. Idempotent.

        Requests have until ``stop_by``, of `time.monotonic`.
        """
        self.begin_draining()
        leaving = tuple(self._tasks)
        for model in leaving:
            model.unload(Draining(DRAINING), stop_by)
        for model in leaving:
            await model.gone.wait()

    def _refuse_if_draining(self) -> None:
        if self._draining:
            raise Draining(DRAINING)
