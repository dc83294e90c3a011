"""A worker's datagrams to the supervisor: its pid as a heartbeat, or the reason why it can't boot."""

import math
import os
import socket
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from tfs_proxy.deployment import BootFailure
from tfs_proxy.errors import ScriptLoadError, TfsProxyError

REPORT_CHARACTERS = 16_000
"""Of a traceback at most, so that it fits into a datagram; its end tells the most."""


class Heartbeat:
    """Sends datagrams to the supervisor's socket at ``path``.

    It never raises, and heartbeats never block: a worker must not suffer from a supervisor that is gone or
    slow.
    """

    def __init__(self, path: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._path = str(path)
        self._clock = clock
        self._last_beat = -math.inf
        self._pid = str(os.getpid()).encode()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)

    def beat(self) -> bool:
        """Send the pid, unless it was sent less than a second ago; whether it was time for it."""
        now = self._clock()
        if now - self._last_beat < 1:
            return False
        self._last_beat = now
        self._send(self._pid)
        return True

    def say(self, message: str) -> None:
        """Send a message after the pid, at once, which is not a heartbeat: `supervisor.health` has them."""
        self._send(self._pid + b" " + message.encode(errors="replace"))

    def say_loading(self) -> None:
        """Send that this worker begins to load the application: what it loads may end the process."""
        self._deliver(b"+" + self._pid)

    def say_failure(self, failure: BootFailure) -> None:
        """Send why this worker can't load the application."""
        self._deliver(failure.to_json())

    def _deliver(self, message: bytes) -> None:
        """Send what must arrive: wait while the queue of the supervisor, which lives, is full."""
        self._socket.setblocking(True)
        self._send(message)
        self._socket.setblocking(False)

    def _send(self, message: bytes) -> None:
        with suppress(OSError):
            self._socket.sendto(message, self._path)

    def close(self) -> None:
        """Close the socket; idempotent."""
        self._socket.close()


def boot_failure(error: Exception) -> BootFailure:
    """Why this worker can't load the application; with a traceback, but for errors that need none."""
    if isinstance(error, ScriptLoadError):
        text, report = str(error), error.report
    elif isinstance(error, TfsProxyError):
        text, report = str(error), ""
    else:
        text = f"A worker can't start: {type(error).__name__}: {error}"
        report = "".join(traceback.format_exception(error)).rstrip()
    return BootFailure(text, report[-REPORT_CHARACTERS:])
