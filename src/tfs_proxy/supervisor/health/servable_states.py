"""TF Serving's states of model versions, as its REST API tells them: pure."""

import json
from collections.abc import Callable, Collection, Mapping
from typing import Any

from msgspec import Struct

from tfs_proxy.wire.grpc_codes import GrpcCode

AVAILABLE = "AVAILABLE"
ENDED = "END"
EXHAUSTED = GrpcCode.RESOURCE_EXHAUSTED.name


class ExpectedVersion(Struct, frozen=True):
    """One version of a model on one instance; None stands for whichever version the instance has."""

    instance: int
    model: str
    version: int | None

    def __str__(self) -> str:
        return f"model {self.model}" + ("" if self.version is None else f" version {self.version}")


class ServableState(Struct, frozen=True):
    """TF Serving's state of a version, and its error (docs/reference/tensorflow-serving.md)."""

    state: str = "START"
    error: str = ""

    @property
    def available(self) -> bool:
        """Whether it answers requests."""
        return self.state == AVAILABLE

    @property
    def failed(self) -> bool:
        """Whether it will not become available."""
        return self.state == ENDED and bool(self.error)

    @property
    def unloaded(self) -> bool:
        """Whether it was unloaded on request, which is not a failure."""
        return self.state == ENDED and not self.error


NO_VERSION = ServableState("not loaded: the model server has found no version of it")


def best_of(states: Collection[ServableState]) -> ServableState:
    """The state of a model whose versions come and go: that of the version closest to serving."""
    ranks: tuple[Callable[[ServableState], bool], ...] = (
        lambda state: state.available,
        lambda state: state.state != ENDED,
        lambda state: not state.unloaded,
    )
    for fits in ranks:
        for state in states:
            if fits(state):
                return state
    return next(iter(states), NO_VERSION)


def read_status(body: bytes) -> dict[int, ServableState]:
    """The answer of ``GET /v1/models/NAME`` as state by version; raises ValueError if it is not one."""
    try:
        return {
            int(entry["version"]): _read_state(entry) for entry in json.loads(body)["model_version_status"]
        }
    except (KeyError, TypeError) as error:
        raise ValueError(f"not a model status: {error!r}") from error


def _read_state(entry: Mapping[str, Any]) -> ServableState:
    status = entry.get("status", {})
    code, message = status.get("error_code", "OK"), str(status.get("error_message", ""))
    if code == EXHAUSTED and EXHAUSTED not in message:
        message = f"{EXHAUSTED}: {message}"  # which the message alone may not tell
    return ServableState(entry["state"], "" if code == "OK" else message)


def state_of(servable: ExpectedVersion, states: Mapping[int, ServableState]) -> ServableState:
    """The state of what is expected, among those of its model; a version that is missing has not begun."""
    if servable.version is None:
        return best_of(tuple(states.values()))
    return states.get(servable.version, ServableState())
