"""The models of a run as the Open Inference Protocol lists them; `ServedArchive` has those of one archive."""

from collections.abc import Callable, Collection, Sequence
from enum import Enum
from typing import Protocol

from msgspec import Struct

from tfs_proxy.deployment import Deployment
from tfs_proxy.errors import BadInput
from tfs_proxy.supervisor.health.readiness import AVAILABLE, ENDED, Readiness, ServableState, best_of

ONLY_VERSION = "1"
"""The version of a script model, which has none of its own."""

_NO_LOADS = (
    "models can't be loaded or unloaded here: that takes a run with several models, by "
    "SAGEMAKER_MULTI_MODEL=true or --multi-model"
)


class IndexState(Enum):
    """Triton's states of a version."""

    READY = "READY"
    LOADING = "LOADING"
    UNLOADING = "UNLOADING"
    UNAVAILABLE = "UNAVAILABLE"


class IndexedVersion(Struct, frozen=True):
    """A version of a model, "" if none is known; ``reason`` says why it is not ready."""

    model: str
    version: str
    state: IndexState
    reason: str = ""


class Repository(Protocol):
    can_load: bool
    """True if models can be loaded and unloaded at run time."""

    async def index(self) -> Sequence[IndexedVersion]:
        """All versions: models by name, their versions ascending."""

    def served(self) -> Collection[str] | None:
        """The models of TF Serving's REST API; None if it is not published."""

    async def load(self, name: str, url: str | None, /) -> None:
        """Returns once the model is ready. Raises TfsProxyError if it can't be loaded."""

    async def unload(self, name: str, /) -> None:
        """Returns once the model has gone. Raises TfsProxyError if it can't be unloaded."""


class ServedArchive:
    """The models of the one archive of a run; ``deployment`` is None until it has been opened."""

    can_load = False

    def __init__(self, readiness: Readiness, deployment: Callable[[], Deployment | None]) -> None:
        self.readiness = readiness
        self._deployment = deployment

    async def index(self) -> Sequence[IndexedVersion]:
        """All versions, as the model servers have last reported them."""
        deployment = self._deployment()
        if deployment is None:
            return ()
        if deployment.script_model is not None:
            return (self._of_script(deployment.default_model),)
        return tuple(
            entry
            for model, versions in sorted(deployment.models.items())
            for entry in self._of_model(model, versions)
        )

    def served(self) -> Collection[str] | None:
        """The models, if the REST API is published."""
        deployment = self._deployment()
        return deployment.models.keys() if deployment is not None and deployment.publishes_rest else None

    async def load(self, _name: str, _url: str | None) -> None:
        """Raises BadInput: the archive is that of the start."""
        raise BadInput(_NO_LOADS)

    async def unload(self, _name: str) -> None:
        """Raises BadInput: the archive stays."""
        raise BadInput(_NO_LOADS)

    def _of_script(self, model: str) -> IndexedVersion:
        reason = self.readiness.reason()
        state = IndexState.READY if reason is None else IndexState.UNAVAILABLE
        return IndexedVersion(model, ONLY_VERSION, state, reason or "")

    def _of_model(self, model: str, versions: Sequence[int]) -> list[IndexedVersion]:
        """Each version in its best state on any model server; one without a number if none is known."""
        states: dict[int, list[ServableState]] = {version: [] for version in versions}
        for (instance, of_model), reported in self.readiness.reported.items():
            if of_model == model and instance not in self.readiness.unreachable:
                for version, state in reported.items():
                    states.setdefault(version, []).append(state)
        if not states:
            return [IndexedVersion(model, "", IndexState.UNAVAILABLE, best_of(()).state)]
        return [
            _indexed(model, version, best_of(reported) if reported else ServableState())
            for version, reported in sorted(states.items())
        ]


def _indexed(model: str, version: int, servable: ServableState) -> IndexedVersion:
    state = _STATES.get(servable.state, IndexState.UNAVAILABLE)
    reason = "" if state is IndexState.READY else servable.error or servable.state
    return IndexedVersion(model, str(version), state, reason)


_STATES = {
    AVAILABLE: IndexState.READY,
    "START": IndexState.LOADING,
    "LOADING": IndexState.LOADING,
    "UNLOADING": IndexState.UNLOADING,
    ENDED: IndexState.UNAVAILABLE,
}
