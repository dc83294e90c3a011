"""A worker's datagrams to the supervisor: its pid as a heartbeat, or the reason why it can't boot."""

import os
import socket
import time
import traceback
from collections.abc import Callable
from contextlib import suppress

from tfs_proxy.deployment import BootFailure
from tfs_proxy.errors import ScriptLoadError, TfsProxyError

REPORT_CHARACTERS = 16_000
"""Of a traceback at most, so that it fits into a datagram; its end tells the most."""


class Heartbeat:
    """Sends this process's pid to the unix datagram socket at ``path``, at most once in a second.

    It never blocks and never raises: a worker must not suffer from a supervisor that is gone or slow.
    """

    def __init__(self, path: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._path = path
        self._clock = clock
        self._last: float | None = None
        self._message = str(os.getpid()).encode()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)

    def beat(self) -> bool:
        """Send a datagram, unless one was sent less than a second ago; whether it was time for one."""
        now = self._clock()
        if self._last is not None and now - self._last < 1:
            return False
        self._last = now
        self._send(self._message)
        return True

    def say(self, words: str) -> None:
        """Send words after the pid, at once, for `supervisor.hanging_calls`. They are no heartbeat."""
        self._send(self._message + b" " + words.encode(errors="replace"))

    def _send(self, message: bytes) -> None:
        try:
            self._socket.sendto(message, self._path)
        except OSError:
            return

    def close(self) -> None:
        """Give the socket back; idempotent."""
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


def tell_failure(path: str, failure: BootFailure) -> None:
    """Send it to the unix datagram socket at ``path``."""
    _send(path, failure.to_json())


def tell_loading(path: str) -> None:
    """Send that this worker begins to load the application: what it loads may end the process."""
    _send(path, f"+{os.getpid()}".encode())


def _send(path: str, message: bytes) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as out, suppress(OSError):
        out.sendto(message, path)
