"""A worker's sign of life to the supervisor: its pid in a datagram, from `web.worker`."""

import os
import socket
import time
from collections.abc import Callable


class Heartbeat:
    """Sends this process's pid to the unix datagram socket at ``path``, at most once in a second.

    It never blocks and never raises: a supervisor that is gone or slow is no fault of the worker.
    """

    def __init__(self, path: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._path = path
        self._clock = clock
        self._last: float | None = None
        self._message = str(os.getpid()).encode()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)

    def beat(self) -> None:
        """Send a datagram, unless one was sent less than a second ago."""
        now = self._clock()
        if self._last is not None and now - self._last < 1:
            return
        self._last = now
        try:
            self._socket.sendto(self._message, self._path)
        except OSError:
            return

    def close(self) -> None:
        """Give the socket back; idempotent."""
        self._socket.close()
