"""Worker class ``gthread`` behind nginx: each thread reads a request, and serves it.

gunicorn's own class waits for connections in one thread and passes each request to another and back, which
costs more than a small request does. It serves without nginx: here nobody waits for slow or hostile clients.
"""

import logging
import os
import select
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from socket import MSG_DONTWAIT, SHUT_WR, socket
from typing import Any, NamedTuple

from gunicorn.http.parser import RequestParser
from gunicorn.http.wsgi import create
from gunicorn.workers.base import Worker

from tfs_proxy.values.resources import most_descriptors
from tfs_proxy.wire.connect import has_unread
from tfs_proxy.worker.gunicorn_workers.base import ContainerWorker
from tfs_proxy.worker.gunicorn_workers.plain_http import (
    PlainRequest,
    PromptResponse,
    plain_environ,
    plain_request,
)

log = logging.getLogger(__name__)

READ_BYTES = 64 * 1024
TICK_SECONDS = 0.25
DRAIN_TICK_SECONDS = 0.05
IDLE_TICK_SECONDS = 1.0
IDLE_AFTER_SECONDS = 2.0
"""Pause of the ticks of a worker without requests, and when it begins: a tick costs 0.2 ms."""

DRAIN_LINGER_SECONDS = 0.1
"""Time for which a kept connection stays open at the end; nginx repeats later requests."""

LINGER_SECONDS = 2.0
"""Time for which a connection that ends is read: unread bytes of nginx would undo the answer."""

DEFER_SECONDS = 0.001
MOST_DEFERRED = 8
MOST_AT_ONCE = 8
"""Delay of accepting for each connection that a worker has, so that others do; most of them; most at once."""

WARNING_SECONDS = 60.0

ONE_THREAD = select.EPOLLIN | select.EPOLLONESHOT
"""Events of a socket for one thread, which owns it until it calls `Poller.watch` for it again."""

SWITCH_SECONDS = sys.getswitchinterval()
CALM_THREADS = 32
"""Threads from which on one that waits for the interpreter asks for it more rarely.

Asking wakes it up, and with 128 threads that was a fifth of the worker's CPU time.
"""


class Poller:
    """Threads that all wait on one epoll: as many as were ever busy at once, up to ``most_threads()``.

    The kernel wakes one of them for each socket that can be read; it calls ``serve`` with its descriptor.
    """

    def __init__(self, serve: Callable[[int], None], most_threads: Callable[[], int]) -> None:
        self._serve = serve
        self._most_threads = most_threads
        self._epoll = select.epoll()
        self._end, self._ending = os.pipe()
        self._epoll.register(self._end, select.EPOLLIN)
        self._counts = threading.Lock()
        self._threads = self._waiting = 0

    def add(self, added: socket) -> None:
        """Add a socket, and report it once, as soon as it can be read."""
        self._epoll.register(added, ONE_THREAD)

    def watch(self, watched: socket) -> None:
        """Report this socket once more."""
        self._epoll.modify(watched, ONE_THREAD)

    def stop(self) -> None:
        """End every thread when it waits next."""
        os.write(self._ending, b".")

    def add_thread(self) -> None:
        """Start a thread that waits with the others, unless one waits already or there are enough."""
        with self._counts:
            if self._waiting or self._threads >= self._most_threads():
                return
            self._threads += 1
            self._waiting += 1
            sys.setswitchinterval(SWITCH_SECONDS * max(1.0, self._threads / CALM_THREADS))
        thread = threading.Thread(target=self._take_turns, name=f"request-{self._threads}", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            log.warning("the system allows no more than %d threads: %s", self._threads - 1, error)
            with self._counts:
                self._threads -= 1
                self._waiting -= 1

    def _take_turns(self) -> None:
        """Wait for a socket, serve it, and so on until the end."""
        poll = self._epoll.poll
        end = self._end
        while True:
            descriptor = poll(None, 1)[0][0]
            if descriptor == end:
                return
            with self._counts:
                self._waiting -= 1
                alone = not self._waiting
            if alone:
                self.add_thread()
            try:
                self._serve(descriptor)
            except BaseException:  # a thread that ended would not be replaced
                log.exception("a connection failed")
            with self._counts:
                self._waiting += 1


class Connection(NamedTuple):
    """Connection from nginx, with the addresses of both ends."""

    socket: socket
    client: Any
    server: Any


class KeptConnections:
    """Connections of one worker: each is idle here, or owned by the one thread that took it."""

    def __init__(self, poller: Poller) -> None:
        self._poller = poller
        self._idle: dict[int, Connection] = {}
        self._count_lock = threading.Lock()
        self.count = 0

    @property
    def at_work(self) -> int:
        return self.count - len(self._idle)

    def accept(self, listener: Any) -> None:
        """Take a new connection. Raises OSError if there is none, or no descriptor for it."""
        accepted, client = listener.accept()
        accepted.setblocking(True)
        self._change_count(1)
        self._idle[accepted.fileno()] = Connection(accepted, client, listener.getsockname())
        self._poller.add(accepted)

    def take(self, descriptor: int) -> Connection | None:
        """Take the connection that can be read: it is the caller's own."""
        return self._idle.pop(descriptor, None)

    def keep(self, connection: Connection) -> None:
        """Leave a connection to any thread that is free when nginx sends something."""
        self._idle[connection.socket.fileno()] = connection
        self._poller.watch(connection.socket)

    def close_used(self, connection: Connection) -> None:
        """Close a connection that the caller owns, once nginx has read the answer."""
        with suppress(OSError):
            connection.socket.shutdown(SHUT_WR)
            until = time.monotonic() + LINGER_SECONDS
            connection.socket.settimeout(LINGER_SECONDS)
            while connection.socket.recv(READ_BYTES) and time.monotonic() < until:
                pass
        connection.socket.close()
        self._change_count(-1)

    def close_idle(self, most: int | None = None) -> int:
        """Close idle ones, longest idle first; returns their number."""
        closed = 0
        for descriptor in tuple(self._idle)[:most]:
            # If a request waits for a free thread, its connection is not idle. Or another thread owns it now.
            connection = None if has_unread(descriptor) else self._idle.pop(descriptor, None)
            if connection is not None:
                connection.socket.close()
                self._change_count(-1)
                closed += 1
        return closed

    def _change_count(self, change: int) -> None:
        with self._count_lock:
            self.count += change


class ThreadWorker(ContainerWorker, Worker):  # type: ignore[misc]  # gunicorn has no types
    """Worker of at most ``--threads`` threads, and one more for each call of the script that hangs."""

    alive: bool

    def init_process(self) -> None:
        """Prepare, then load the application and run."""
        self._poller = Poller(
            self._serve_descriptor, lambda: int(self.cfg.threads) + self.served.watch.hanging
        )
        self._connections = KeptConnections(self._poller)
        self._most = min(self.cfg.worker_connections, most_descriptors() // 2)
        self._is_logged = self.log.access_log_enabled
        self._counted = 0
        self._busy_at = time.monotonic()
        self._warn_at = 0.0
        super().init_process()

    def serve(self) -> None:
        """Serve until told to end, then finish requests in flight."""
        self._poller.add_thread()
        waiting = select.poll()
        for waited in (self.PIPE[0], *self.sockets):
            waiting.register(waited, select.POLLIN)
        listeners = {listener.fileno(): listener for listener in self.sockets}
        for listener in self.sockets:
            listener.setblocking(False)
        while self.alive and self.ppid == os.getppid():
            for descriptor, _ in waiting.poll(self._pause_seconds() * 1000):
                if descriptor in listeners:
                    self._accept_share(listeners[descriptor])
                else:  # a signal has come
                    os.read(descriptor, READ_BYTES)
        for listener in self.sockets:
            listener.close()
        began = time.monotonic()
        while (
            self._connections.count > self.served.watch.hanging
            and time.monotonic() < began + self.cfg.graceful_timeout
        ):
            time.sleep(DRAIN_TICK_SECONDS)
            if time.monotonic() > began + DRAIN_LINGER_SECONDS:
                self._connections.close_idle()
        self._poller.stop()

    def _pause_seconds(self) -> float:
        now = time.monotonic()
        if self.nr != self._counted or self._connections.at_work:
            self._counted = self.nr
            self._busy_at = now
        return TICK_SECONDS if now < self._busy_at + IDLE_AFTER_SECONDS else IDLE_TICK_SECONDS

    def _accept_share(self, listener: Any) -> None:
        """Accept new connections unless workers that have fewer do it first: nginx keeps them for long."""
        have = self._connections.count
        if self.cfg.workers > 1:
            time.sleep(DEFER_SECONDS * min(have, MOST_DEFERRED))
        try:
            for _ in range(min(1 + have // 2, MOST_AT_ONCE) if self.cfg.workers > 1 else self._most):
                if self._connections.count >= self._most and not self._connections.close_idle(1):
                    time.sleep(DRAIN_TICK_SECONDS)
                    return
                self._connections.accept(listener)
        except (BlockingIOError, ConnectionAbortedError):
            return
        except OSError as error:
            # Requests need descriptors, too.
            if not self._connections.close_idle(1 + self._connections.count // 4):
                now = time.monotonic()
                if now >= self._warn_at:
                    self._warn_at = now + WARNING_SECONDS
                    log.warning("a connection can't be accepted: %s", error)
                time.sleep(DRAIN_TICK_SECONDS)

    @property
    def most_hanging(self) -> int:
        """Limit of hanging calls: all connections, since a new thread replaces each one that hangs."""
        return int(self.cfg.worker_connections)

    def replace_thread(self) -> None:
        self._poller.add_thread()

    def _serve_descriptor(self, descriptor: int) -> None:
        connection = self._connections.take(descriptor)
        if connection is None:
            return
        kept = False
        try:
            kept = self._answer(connection)
        except OSError as error:
            log.debug("nginx was gone: %s", error)
        finally:
            if kept:
                self._connections.keep(connection)
            else:
                self._connections.close_used(connection)

    def _answer(self, connection: Connection) -> bool:
        """Answer a request whose first bytes are here; True if the connection can take more."""
        try:
            data = connection.socket.recv(READ_BYTES, MSG_DONTWAIT)
        except BlockingIOError:
            return True
        if not data:
            return False
        request = None if self._is_logged else plain_request(data, connection.socket)
        if request is None:
            return self._answer_parsed(connection, data)
        # The rest of a refused request's body would be taken for the next request.
        response = PromptResponse(
            request, connection.socket, self.cfg, lambda: not self.alive or request.body.left > 0
        )
        environ = plain_environ(request, connection.socket, connection.client, connection.server)
        return self._respond(connection, request, response, environ) and not request.body.left

    def _answer_parsed(self, connection: Connection, data: bytes) -> bool:
        """Let gunicorn's parser read the request."""
        parser = RequestParser(self.cfg, connection.socket, connection.client)
        parser.unreader.unread(data)
        request = None
        try:
            request = next(parser)
            self.cfg.pre_request(self, request)
            response, environ = create(
                request, connection.socket, connection.client, connection.server, self.cfg
            )
        except StopIteration:  # the client has sent nothing more
            return False
        except OSError:
            raise
        except Exception as error:  # noqa: BLE001 - gunicorn's refusals, and its own faults
            self.handle_error(request, connection.socket, connection.client, error)
            return False
        environ["wsgi.multithread"] = True
        if not self.alive:
            response.force_close()
        began = time.monotonic()
        kept = self._respond(connection, request, response, environ)
        self.log.access(response, request, environ, timedelta(seconds=time.monotonic() - began))
        return kept and bool(parser.finish_body(time.monotonic() + LINGER_SECONDS))

    def _respond(
        self, connection: Connection, request: PlainRequest | Any, response: Any, environ: dict[str, Any]
    ) -> bool:
        """Run the application, and send its answer; True if the connection can take more."""
        self.nr += 1
        if self.nr >= self.max_requests and self.alive:
            log.info("this worker has served its %d requests, and starts anew", self.nr)
            self.alive = False
        try:
            pieces = self.wsgi(environ, response.start_response)
            try:
                for piece in pieces:
                    response.write(piece)
                response.close()
            finally:
                if hasattr(pieces, "close"):
                    pieces.close()
        except OSError as error:
            log.debug("nginx was gone: %s", error)
            return False
        except Exception as error:
            if response.headers_sent:
                log.exception("an answer broke off")
            else:
                self.handle_error(request, connection.socket, connection.client, error)
            return False
        return not response.should_close()
