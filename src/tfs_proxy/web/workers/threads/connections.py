"""The sockets of one worker: listeners that it accepts on, and connections while no thread owns them."""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from socket import socket
from typing import Any

from tfs_proxy.web.workers.threads.poller import Poller, is_readable

log = logging.getLogger(__name__)

ACCEPT_PAUSE_SECONDS = 0.05


Connection = Any
"""gunicorn's ``TConn``, which has no types; its ``timeout`` is when it has been idle too long."""

Open = Callable[[socket, object, object], Connection]
"""A connection from its socket, the client's address and the listener's."""


class WorkerConnections:
    """At most ``most`` connections; each lies idle here, or is owned by the one thread that took it."""

    def __init__(self, poller: Poller, open_connection: Open, most: int) -> None:
        self._poller = poller
        self._open = open_connection
        self._most = most
        self._idle: dict[int, Connection] = {}
        self._listeners: dict[int, socket] = {}
        self._others: Sequence[socket] = ()
        self._count_lock = threading.Lock()
        self.count = 0

    def listen(self, own: Sequence[socket], others: Sequence[socket]) -> None:
        """Accept on ``own`` as soon as a connection comes, and on ``others`` what `accept_waiting` finds."""
        self._others = others
        for listener in (*own, *others):
            listener.setblocking(False)
        for listener in own:
            self._listeners[listener.fileno()] = listener
            self._poller.add(listener)
            self._poller.watch(listener)

    def stop_listening(self) -> None:
        """Accept nothing more, and close all listeners."""
        own = tuple(self._listeners.values())
        for listener in own:
            self._poller.remove(listener)
        self._listeners.clear()  # before they are closed: a thread may have been woken for one
        for listener in (*own, *self._others):
            listener.close()

    def take(self, descriptor: int) -> Connection | None:
        """The connection that can be read, now the caller's own; a listener accepts, and gives None."""
        listener = self._listeners.get(descriptor)
        if listener is None:
            return self._idle.pop(descriptor, None)
        self._accept(listener)
        self._watch_listener(listener)
        return None

    def accept_waiting(self) -> None:
        """Accept what a worker that has ended, or is busy, left on its socket, and watch listeners again."""
        for listener in tuple(self._listeners.values()):
            self._watch_listener(listener)
        for listener in self._others:
            while self.count < self._most and self._accept(listener):
                pass

    def keep(self, connection: Connection) -> None:
        """Leave a connection to whichever thread is free when the client sends something."""
        connection.set_timeout()
        self._idle[connection.sock.fileno()] = connection
        self._poller.watch(connection.sock)

    def close(self, connection: Connection) -> None:
        """Close a connection that the caller owns."""
        self._change_count(-1)
        connection.close(graceful=True)

    def limit_idleness(self, deadline: float) -> None:
        """Let no connection be idle beyond ``deadline``."""
        for connection in tuple(self._idle.values()):
            connection.timeout = min(connection.timeout, deadline)

    def close_idle(self, now: float) -> None:
        """Close connections that have been idle too long."""
        for descriptor, connection in tuple(self._idle.items()):
            # If a request waits for a free thread, the client is not idle. Another thread may own it by now.
            if connection.timeout > now or is_readable(descriptor):
                continue
            if self._idle.pop(descriptor, None) is not None:
                self._change_count(-1)
                connection.close()

    def _watch_listener(self, listener: socket) -> None:
        """Watch for the next connection, unless there are too many; then the next tick tries again."""
        if self.count < self._most:
            self._poller.watch_if_open(listener)

    def _accept(self, listener: socket) -> bool:
        """Accept one connection; whether there was one."""
        self._change_count(1)  # before it is accepted: a worker that drains ends when it counts none
        try:
            client, address = listener.accept()
        except (BlockingIOError, ConnectionAbortedError):
            self._change_count(-1)
            return False
        except OSError as error:
            self._change_count(-1)
            log.warning("a connection can't be accepted: %s", error)
            time.sleep(ACCEPT_PAUSE_SECONDS)
            return False
        connection = self._open(client, address, listener.getsockname())
        client.setblocking(True)
        self._poller.add(client)
        self.keep(connection)
        return True

    def _change_count(self, change: int) -> None:
        with self._count_lock:
            self.count += change
