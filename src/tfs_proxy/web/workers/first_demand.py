"""How gunicorn's master, as long as it has no worker, learns that a request waits for one."""

import selectors
import signal
import socket
import time
from collections.abc import Sequence
from pathlib import Path

from tfs_proxy.upstream.instances import released

PAUSE_SECONDS = 0.02
"""Until the run is ready the supervisor itself answers; it may not have accepted a connection yet."""


class FirstDemand:
    """Watches ``listeners``, without accepting; signals end a wait, too.

    For the main thread, once signal handlers are set.
    """

    def __init__(self, listeners: Sequence[socket.socket], control_socket: Path) -> None:
        self._control_socket = control_socket
        self._woken, self._wakes = socket.socketpair()
        for end in (self._woken, self._wakes):
            end.setblocking(False)
        signal.set_wakeup_fd(self._wakes.fileno(), warn_on_full_buffer=False)
        self._selector = selectors.DefaultSelector()
        for watched in (self._woken, *listeners):
            self._selector.register(watched.fileno(), selectors.EVENT_READ)

    def waits(self, seconds: float) -> bool:
        """Whether a request waits for a worker; returns at once if so, at a signal, or after ``seconds``."""
        ready = {key.fd for key, _ in self._selector.select(seconds)}
        if self._woken.fileno() in ready:
            self._woken.recv(4096)
            ready.discard(self._woken.fileno())
        if not ready:
            return False
        if released(self._control_socket):
            return True
        time.sleep(PAUSE_SECONDS)
        return False

    def close(self) -> None:
        """Watch no more; no worker inherits anything of it."""
        signal.set_wakeup_fd(-1)
        self._selector.close()
        self._woken.close()
        self._wakes.close()
