"""Starts the target for an occasion and waits for its ping; the checks of the occasion share the start."""

import time
from contextlib import AbstractContextManager
from http import HTTPStatus

from msgspec import Struct

from tfs_proxy.tools.conform.raw_http import NoReply, RawConnection, RawRequest, ask_once
from tfs_proxy.tools.conform.target import ConformTarget, RunningContainer, StartOrder
from tfs_proxy.values.errors import TfsProxyError

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
