"""What the checks know of a target, whichever it is: how it is started, and a container that runs."""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from enum import Enum
from pathlib import Path
from typing import Protocol

from msgspec import Struct, field

from tfs_proxy.errors import TfsProxyError

LABEL_PREFIX = "com.amazonaws.sagemaker.capabilities."


class Capability(Enum):
    """Something that not every container can, so it is only judged if the container says so."""

    MULTI_MODEL = "multi-model"
    PIPELINE = "pipeline"
    WEBSOCKET = "websocket"

    @property
    def label(self) -> str:
        """The label by which an image says so."""
        return LABEL_PREFIX + LABELS[self]


LABELS = {
    Capability.MULTI_MODEL: "multi-models",
    Capability.PIPELINE: "accept-bind-to-port",
    Capability.WEBSOCKET: "bidirectional-streaming",
}


def of_labels(labels: Mapping[str, str]) -> frozenset[Capability]:
    """Read the labels of an image."""
    return frozenset(each for each in Capability if labels.get(each.label, "").lower() == "true")


class CannotStart(TfsProxyError):
    """The target can't be started in the way that is asked for: the reason, for checks that are not run."""


class StartOrder(Struct, frozen=True):
    """Start of a container: on top of what the user said, variables, another model, another port.

    ``model`` replaces the user's; ``models`` is the folder of models to load, one below each name;
    ``port`` is what SAGEMAKER_BIND_TO_PORT says.
    """

    env: Mapping[str, str] = field(default_factory=dict)
    model: Path | None = None
    models: Path | None = None
    port: int | None = None


class RunningContainer(Protocol):
    """A container that was started, and perhaps ended since."""

    address: tuple[str, int]
    accepts_itself: bool
    """Whether a connection to ``address`` is accepted by the container, not by a proxy of this machine."""
    started: float
    """``time.monotonic()`` of the start."""

    def exit_status(self) -> int | None:
        """Its exit status, or None as long as it runs."""

    def log(self) -> bytes:
        """All that it has written to stdout and stderr."""

    def terminate(self) -> None:
        """Send SIGTERM."""

    def listening(self) -> frozenset[int] | None:
        """The TCP ports that it listens on; None if that can't be found out here."""


class ConformTarget(Protocol):
    """Address, command or image that is judged."""

    name: str
    capabilities: frozenset[Capability]
    can_start: bool

    def started(self, order: StartOrder) -> AbstractContextManager[RunningContainer]:
        """Start a container; nothing of it is left behind. Raises CannotStart."""

    def model_url(self, order: StartOrder, name: str) -> str:
        """The ``url`` of a load of the model of that name below ``order.models``."""

    def image(self) -> Mapping[str, object] | None:
        """The configuration of the image as ``docker inspect`` has it; None if there is none."""
