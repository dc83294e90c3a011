"""Interfaces of all targets: how one is started, and the container that runs."""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from enum import Enum
from pathlib import Path
from typing import Protocol

from msgspec import Struct, field

from tfs_proxy.values.errors import TfsProxyError

LABEL_PREFIX = "com.amazonaws.sagemaker.capabilities."


class Capability(Enum):
    """An ability that not every container has; it is judged only if the image says so."""

    MULTI_MODEL = "multi-model"
    PIPELINE = "pipeline"
    WEBSOCKET = "websocket"

    @property
    def label(self) -> str:
        return LABEL_PREFIX + LABELS[self]


LABELS = {
    Capability.MULTI_MODEL: "multi-models",
    Capability.PIPELINE: "accept-bind-to-port",
    Capability.WEBSOCKET: "bidirectional-streaming",
}


def of_labels(labels: Mapping[str, str]) -> frozenset[Capability]:
    return frozenset(each for each in Capability if labels.get(each.label, "").lower() == "true")


class CannotStart(TfsProxyError):
    """The target can't be started in the way that is asked for: the reason, for checks that are not run."""


class StartOrder(Struct, frozen=True):
    """The start of a container: variables, model and port that replace the user's.

    ``models`` is the folder of models to load, one below each name; ``port`` is the value of
    SAGEMAKER_BIND_TO_PORT.
    """

    env: Mapping[str, str] = field(default_factory=dict)
    model: Path | None = None
    models: Path | None = None
    port: int | None = None


class RunningContainer(Protocol):
    address: tuple[str, int]
    accepts_itself: bool
    """True if the container itself accepts connections to ``address``, not a proxy of this machine."""
    started: float

    def exit_status(self) -> int | None:
        """None as long as it runs."""

    def log(self) -> bytes:
        """Everything that it has written to stdout and stderr."""

    def terminate(self) -> None:
        """Send SIGTERM."""

    def listening(self) -> frozenset[int] | None:
        """TCP ports that it listens on; None if that can't be found out."""


class ConformTarget(Protocol):
    """The address, command or image that is judged."""

    name: str
    capabilities: frozenset[Capability]
    can_start: bool

    def started(self, order: StartOrder) -> AbstractContextManager[RunningContainer]:
        """Starts the container again, some times at most, if a failed check has ended or blocked it."""

    def model_url(self, order: StartOrder, name: str) -> str:
        """The ``url`` with which the model ``name`` below ``order.models`` is loaded."""

    def image(self) -> Mapping[str, object] | None:
        """The image's configuration from ``docker inspect``; None if there is no image."""
