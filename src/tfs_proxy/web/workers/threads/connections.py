"""The sockets of one worker: listeners that it accepts on, and connections while no thread owns them."""

import errno
import logging
import threading
import time
from collections.abc import Callable, Sequence
from socket import socket

from tfs_proxy.web.workers.threads.client import ClientConnection
from tfs_proxy.web.workers.threads.poller import Poller, is_readable

log = logging.getLogger(__name__)

OUT_OF_DESCRIPTORS = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}
WARNING_SECONDS = 60.0

Open = Callable[[socket, object, object], ClientConnection]
"""A connection from its socket, the client's address and the listener's."""


class WorkerConnections:
    """At most ``most`` connections; each lies idle here, or is owned by the one thread that took it.

    Idle means that no thread is at work on it: nothing has come, or a request is not whole. If there are too
    many, or no descriptor is left, the one that has been idle for longest is closed for a new one.
    """

    def __init__(self, poller: Poller, open_connection: Open, most: int) -> None:
        self._poller = poller
        self._open = open_connection
        self._most = most
        self._idle: dict[int, ClientConnection] = {}
        self._listeners: dict[int, socket] = {}
        self._others: Sequence[socket] = ()
        self._count_lock = threading.Lock()
        self._warn_at = 0.0
        self.count = 0

    @property
    def at_work(self) -> int:
        """How many of them threads are at work on."""
        return self.count - len(self._idle)

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

    def take(self, descriptor: int) -> ClientConnection | None:
        """The connection that can be read, now the caller's own; a listener accepts, and gives None."""
        listener = self._listeners.get(descriptor)
        if listener is None:
            return self._idle.pop(descriptor, None)
        # If no room can be made, the next tick watches the listener again.
        if (self.count < self._most or self._make_room()) and self._accept(listener) is not None:
            self._poller.watch_if_open(listener)
        return None

    def accept_waiting(self, most_at_work: int) -> None:
        """Accept what a worker that has ended, or is busy, left on its socket, and watch listeners again.

        What comes while ``most_at_work`` threads are at work here is better left to others.
        """
        for listener in tuple(self._listeners.values()):
            self._poller.watch_if_open(listener)
        for listener in self._others:
            while self.at_work < most_at_work and self.count < self._most and self._accept(listener):
                pass

    def keep(self, connection: ClientConnection) -> None:
        """Leave a connection to whichever thread is free when the client sends something."""
        connection.set_timeout()
        self._idle[connection.sock.fileno()] = connection
        self._poller.watch(connection.sock)

    def end(self, connection: ClientConnection) -> None:
        """Close a connection that the caller owns, as soon as its client has taken in the answer."""
        if connection.begin_end():
            self.keep(connection)
        else:
            self._forget(connection)

    def go_on_ending(self, connection: ClientConnection) -> None:
        """Take in what the client of a connection that ends has sent."""
        if connection.discard():
            self.keep(connection)
        else:
            self._forget(connection)

    def limit_idleness(self, deadline: float) -> None:
        """Let no connection without a request be idle beyond ``deadline``."""
        for connection in tuple(self._idle.values()):
            if connection.idle:
                connection.timeout = min(connection.timeout, deadline)

    def close_idle(self, now: float) -> None:
        """Close connections that have been idle too long."""
        for descriptor, connection in tuple(self._idle.items()):
            # If a request waits for a free thread, the client is not idle. Another thread may own it by now.
            if connection.timeout > now or is_readable(descriptor):
                continue
            if self._idle.pop(descriptor, None) is not None:
                self._change_count(-1)
                connection.expire()

    def _make_room(self, wanted: int = 1) -> bool:
        """Close the connections that have been idle for longest; those without a request come first."""
        longest = sorted(self._idle.items(), key=lambda item: not item[1].idle)
        closed = 0
        for descriptor, connection in longest:
            if not is_readable(descriptor) and self._idle.pop(descriptor, None) is not None:
                self._forget(connection)
                closed += 1
                if closed == wanted:
                    break
        return closed > 0

    def _forget(self, connection: ClientConnection) -> None:
        self._change_count(-1)
        connection.close()

    def _accept(self, listener: socket) -> bool | None:
        """Accept one connection; whether there was one, None if none can be accepted now."""
        self._change_count(1)  # before it is accepted: a worker that drains ends when it counts none
        try:
            name = listener.getsockname()  # before, too: the main thread may close a listener at any time
            client, address = self._accepted(listener)
        except (BlockingIOError, ConnectionAbortedError):
            self._change_count(-1)
            return False
        except OSError as error:
            self._change_count(-1)
            if listener.fileno() >= 0:
                self._warn(error)
            return None
        connection = self._open(client, address, name)
        client.setblocking(True)
        self._poller.add(client)
        self.keep(connection)
        return True

    def _accepted(self, listener: socket) -> tuple[socket, object]:
        try:
            return listener.accept()
        except OSError as error:
            # Requests need descriptors, too.
            if error.errno not in OUT_OF_DESCRIPTORS or not self._make_room(1 + len(self._idle) // 4):
                raise
        return listener.accept()

    def _warn(self, error: OSError) -> None:
        """Say why nothing can be accepted, now and then."""
        now = time.monotonic()
        if now >= self._warn_at:
            self._warn_at = now + WARNING_SECONDS
            log.warning("a connection can't be accepted: %s", error)

    def _change_count(self, change: int) -> None:
        with self._count_lock:
            self.count += change
