"""A target that is judged, its container while it runs, and how it is started and waited for."""

import secrets
import socket
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import AbstractContextManager, suppress
from enum import Enum
from http import HTTPStatus
from pathlib import Path

from msgspec import Struct, field

from tfs_proxy.tools.conform.raw_http import NoReply, RawConnection, RawRequest, ask_once
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


class RunningContainer:
    """A container at ``address``, of which nothing else is known unless a subclass finds it out.

    ``accepts_itself`` is False if a proxy of this machine accepts its connections.
    """

    accepts_itself = True

    def __init__(self, address: tuple[str, int]) -> None:
        self.address = address
        self.started = time.monotonic()

    def exit_status(self) -> int | None:
        """None as long as it runs."""
        return None

    def log(self) -> bytes:
        """Everything that it has written to stdout and stderr."""
        return b""

    def terminate(self) -> None:
        raise NotImplementedError

    def listening(self) -> frozenset[int] | None:
        """TCP ports that it listens on; None if that can't be found out."""
        return None


class ConformTarget(ABC):
    """The address, command or image that is judged."""

    name: str
    capabilities: frozenset[Capability] = frozenset()
    can_start = True

    @abstractmethod
    def started(self, order: StartOrder) -> AbstractContextManager[RunningContainer]: ...
    @abstractmethod
    def model_url(self, order: StartOrder, name: str) -> str:
        """The ``url`` with which the model ``name`` below ``order.models`` is loaded."""

    def image(self) -> Mapping[str, object] | None:
        """The image's configuration from ``docker inspect``; None if there is no image."""
        return None


PING_SECONDS = 2.0
"""Seconds that SageMaker gives a ping: docs/reference/sagemaker.md, Ping."""
POLL_SECONDS = 0.05
LOG_LINES, LOG_CHARACTERS = 3, 400


class StartFailed(TfsProxyError):
    """A container that was started does not listen, or ended: ``reason``, and the end of its log."""

    def __init__(self, reason: str, log: str = "") -> None:
        super().__init__(reason + log)
        self.reason = reason


class StartedContainer(Struct, frozen=True):
    """A container that listens. Seconds are since its start, ``ready_seconds`` None if ping was never 200."""

    container: RunningContainer
    open_seconds: float
    ready_seconds: float | None
    ping: str = ""


class Starting:
    """One start of the target, from ``begin`` to ``close``."""

    def __init__(self, target: ConformTarget, order: StartOrder) -> None:
        self._started: AbstractContextManager[RunningContainer] = target.started(order)
        self.container = self._started.__enter__()
        self._last_ping = ""

    def close(self) -> None:
        """Stops it and removes what it has written."""
        self._started.__exit__(None, None, None)

    def wait(self, seconds: float) -> StartedContainer:
        """Waits at most ``seconds`` until ping answers 200.

        Raises StartFailed if the container ends or never listens.
        """
        opened = self._wait_open(seconds)
        while time.monotonic() - self.container.started < seconds:
            self._refuse_ended()
            if self._is_ready():
                since = time.monotonic() - self.container.started
                return StartedContainer(self.container, opened, since, self._last_ping)
            time.sleep(POLL_SECONDS)
        return StartedContainer(self.container, opened, None, self._last_ping)

    def _wait_open(self, seconds: float) -> float:
        while (since := time.monotonic() - self.container.started) < seconds:
            self._refuse_ended()
            try:
                RawConnection(self.container.address).close()
            except NoReply:
                time.sleep(POLL_SECONDS)
            else:
                return since
        raise StartFailed(f"nothing listens after {seconds:.0f} s", log_end(self.container))

    def _refuse_ended(self) -> None:
        status = self.container.exit_status()
        if status is not None:
            raise StartFailed(f"it ended with status {status}", log_end(self.container))

    def _is_ready(self) -> bool:
        try:
            reply = ask_once(self.container.address, RawRequest(), PING_SECONDS)
        except NoReply as error:
            self._last_ping = str(error)
            return False
        self._last_ping = reply.shown()
        return reply.status == HTTPStatus.OK


def log_end(container: RunningContainer) -> str:
    """The last lines of its log as the end of a sentence; empty if there are none."""
    text = container.log().decode(errors="replace").strip()
    end = " | ".join(line.strip() for line in text.splitlines()[-LOG_LINES:])
    return f"; the end of its log: {end[-LOG_CHARACTERS:]}" if end else ""


def wait_for_end(container: RunningContainer, seconds: float) -> int | None:
    """Its exit status, or None if it still runs after ``seconds``."""
    deadline = time.monotonic() + seconds
    while (status := container.exit_status()) is None and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)
    return status


LOOPBACK = "127.0.0.1"
PORTS = range(20_000, 32_000)
"""multi-model-server takes no port above 32766; kernels give outgoing connections higher ones."""

TRIES = 100
ANY = 0


def free_port() -> int:
    """A loopback port that nothing listens on now: one of `PORTS`, or any if those are taken."""
    for port in (*(secrets.choice(PORTS) for _ in range(TRIES)), ANY):
        with suppress(OSError), socket.socket() as holder:
            holder.bind((LOOPBACK, port))
            return int(holder.getsockname()[1])
    raise OSError("no port is free on this machine")
