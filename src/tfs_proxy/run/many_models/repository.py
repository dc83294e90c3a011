"""The Open Inference Protocol's repository of a run with changing models: loaded and loadable ones.

Models are loaded and unloaded by the names of their archives, and listed by those that requests may use.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from tfs_proxy.run.many_models.api import checked_load_request
from tfs_proxy.run.many_models.on_demand import Load, OnDemandModels
from tfs_proxy.run.many_models.registry import ListedModel, ModelRegistry
from tfs_proxy.run.open_inference import ONLY_VERSION, IndexedVersion, IndexState
from tfs_proxy.run.readiness import StackState
from tfs_proxy.values.errors import BadInput, UnknownModel

STATES: Mapping[StackState, IndexState] = {
    StackState.STARTING: IndexState.LOADING,
    StackState.READY: IndexState.READY,
    StackState.STOPPING: IndexState.UNLOADING,
    StackState.FAILED: IndexState.UNAVAILABLE,
}
NOT_LOADED = "not loaded"


class LoadedModels:
    """The models of ``registry``, and with ``on_demand`` those that it could load.

    ``versions`` returns the models of an archive that serves, by its name. ``load_seconds`` limits a
    load; ``is_published`` is true if TF Serving's REST API is published. ``load`` takes clients' paths.
    """

    can_load = True

    def __init__(
        self,
        registry: ModelRegistry,
        versions: Callable[[str], Mapping[str, Collection[int]]],
        on_demand: OnDemandModels | None,
        load_seconds: float,
        *,
        is_published: bool = True,
        load: Load | None = None,
    ) -> None:
        self._registry = registry
        self._versions = versions
        self._on_demand = on_demand
        self._load_seconds = load_seconds
        self._is_published, self._load_from = is_published, load or registry.load

    async def index(self) -> Sequence[IndexedVersion]:
        """All versions; an archive that is not loaded, or does not serve, has none."""
        archives = () if self._on_demand is None else await self._on_demand.names()
        loaded = {entry for model in self._registry.all() for entry in self._entries(model)}
        there = {*self._registry.names, *(entry.model for entry in loaded)}
        others = {
            IndexedVersion(name, "", IndexState.UNAVAILABLE, NOT_LOADED)
            for name in archives
            if name not in there
        }
        return sorted(loaded | others, key=lambda entry: (entry.model, int(entry.version or 0)))

    def served(self) -> Collection[str] | None:
        """The models that serve, by their names on the model server."""
        if not self._is_published:
            return None
        return [model for loaded in self._registry.list() for model in self._versions(loaded.name)]

    async def load(self, name: str, url: str | None) -> None:
        """Loads a model, from ``url`` if it is given; returns once it is ready, which it may be already.

        Raises BadInput if nothing says where it is, and what the registry raises.
        """
        if url is not None:
            wanted = checked_load_request(name, url)
            await self._load_from(wanted.model_name, wanted.url)
        elif self._on_demand is not None:
            await self._on_demand.ready(name, self._load_seconds)
        else:
            await self._ready(name)

    async def unload(self, name: str) -> None:
        """Raises as the registry does."""
        await self._registry.unload(name)

    async def _ready(self, name: str) -> None:
        try:
            await self._registry.ready(name, self._load_seconds)
        except UnknownModel:
            raise BadInput(
                'nothing says where the model is: send {"parameters": {"url": "/PATH/TO/MODEL"}}, or serve a '
                "folder of archives with --multi-model"
            ) from None

    def _entries(self, model: ListedModel) -> Iterator[IndexedVersion]:
        """The versions of an archive's models; a script model has one."""
        state = STATES[model.state]
        versions = self._versions(model.name)
        for served, numbers in versions.items():
            for number in numbers:
                yield IndexedVersion(served, str(number), state, model.reason)
        if not versions:
            version = ONLY_VERSION if state is IndexState.READY else ""
            yield IndexedVersion(model.name, version, state, model.reason)
