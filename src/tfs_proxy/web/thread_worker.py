"""The ``gthread`` worker class on Linux: every thread takes a request off the wire and serves it to its end.

gunicorn's own class waits for connections in one thread and hands each request to another and back, which
costs more than a small request does. Here all threads wait on one epoll, and the kernel wakes one of them
for each connection that has something to say.
"""

import logging
import os
import select
import selectors
import socket
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from gunicorn.http import wsgi
from gunicorn.workers.gthread import STOP_KEEPALIVE_LINGER, TConn
from gunicorn.workers.gthread import ThreadWorker as GunicornThreadWorker

from tfs_proxy.script.deadline import Call
from tfs_proxy.settings import WorkerEnvironment
from tfs_proxy.web.plain_request import PlainRequest, plain_request
from tfs_proxy.web.prompt_response import PromptResponse
from tfs_proxy.web.seats import Seats
from tfs_proxy.web.worker import ContainerWorker

log = logging.getLogger(__name__)

ONE_THREAD = select.EPOLLIN | select.EPOLLONESHOT
"""A socket is reported to one thread, which owns it until it asks to hear of it again."""

READ_BYTES = 16 * 1024
TICK_SECONDS, MOMENT_SECONDS = 0.25, 0.05


class ThreadWorker(ContainerWorker, GunicornThreadWorker):  # type: ignore[misc]  # gunicorn has no types
    """As many threads as were ever busy at once, up to ``--threads``, around one epoll.

    A connection lies in ``_idle``, or is owned by the one thread that took it out of there.
    """

    alive: bool

    def init_process(self) -> None:
        """Prepare, then load the application and run."""
        self._epoll = select.epoll()
        self._end, self._ending = os.pipe()
        self._epoll.register(self._end, select.EPOLLIN)
        self._idle: dict[int, TConn] = {}
        self._listeners: dict[int, socket.socket] = {}
        self._others: Sequence[socket.socket] = ()
        self._counts = threading.Lock()
        self._threads = self._waiting = 0
        self._seats = Seats(Path(WorkerEnvironment.from_env().seats_file))
        self._plain = not (self.log.access_log_enabled or self.cfg.is_ssl)
        super().init_process()

    def serve(self) -> None:
        """Serve until told to end, then what is in flight."""
        self.poller.register(
            self.method_queue.fileno(), selectors.EVENT_READ, self.method_queue.run_callbacks
        )
        own, self._others = self._seats.take(self.sockets)
        for listener in self.sockets:
            listener.setblocking(False)
        for listener in own:
            self._listeners[listener.fileno()] = listener
            self._epoll.register(listener, ONE_THREAD)
        self._one_more()
        while self.alive and self.is_parent_alive():
            self._tick()
        self._drain()
        os.write(self._ending, b".")

    def _tick(self) -> None:
        """Say that the worker lives, sleep, see to what is idle, and to what others leave waiting."""
        self.notify()
        self.wait_for_and_dispatch_events(TICK_SECONDS)
        self._close_idle(time.monotonic())
        for listener in self._listeners.values():
            self._listen(listener)
        for listener in self._others:
            self._accept_waiting(listener)

    def _drain(self) -> None:
        """Accept no more; let requests in flight end, and idle clients send one that is on its way."""
        for listener in self._listeners.values():
            self._epoll.unregister(listener)
        self._listeners.clear()
        for listener in self.sockets:
            listener.close()
        began = time.monotonic()
        while self.nr_conns > self._hanging and time.monotonic() < began + self.cfg.graceful_timeout:
            self.notify()
            self.wait_for_and_dispatch_events(MOMENT_SECONDS)
            for connection in tuple(self._idle.values()):
                connection.timeout = min(connection.timeout, began + STOP_KEEPALIVE_LINGER)
            self._close_idle(time.monotonic())

    def _close_idle(self, now: float) -> None:
        for descriptor, connection in tuple(self._idle.items()):
            # A request that no thread was free for yet is no silence. Another thread may own it by now.
            if connection.timeout > now or _is_readable(descriptor):
                continue
            if self._idle.pop(descriptor, None) is not None:
                self._forget()
                connection.close()

    @property
    def most_hanging(self) -> int:
        """As many as may be connected: each thread that hangs is made up for."""
        return int(self.worker_connections)

    @property
    def _hanging(self) -> int:
        return int(self.watch.hanging)

    def abandon(self, call: Call) -> None:
        """As in the base; another thread takes the place of the one that hangs."""
        super().abandon(call)
        self._one_more()

    def tell(self) -> None:
        """As in the base; whoever follows this worker takes its seat."""
        if self.watch.hangs:
            self._seats.leave()
        super().tell()

    def _one_more(self) -> None:
        """Start a thread that waits with the others."""
        with self._counts:
            if self._waiting or self._threads >= self.cfg.threads + self._hanging:
                return
            self._threads += 1
            self._waiting += 1
        thread = threading.Thread(target=self._take_turns, name=f"request-{self._threads}", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            log.warning("no more than %d threads can be had: %s", self._threads - 1, error)
            with self._counts:
                self._threads -= 1
                self._waiting -= 1

    def _take_turns(self) -> None:
        """Wait for a connection, serve it, and so on until the end."""
        poll, end = self._epoll.poll, self._end
        while True:
            descriptor = poll(None, 1)[0][0]
            if descriptor == end:
                return
            with self._counts:
                self._waiting -= 1
                alone = not self._waiting
            if alone:
                self._one_more()
            try:
                self._answer(descriptor)
            except BaseException:  # a thread that ends would never be replaced
                log.exception("a connection failed")
            with self._counts:
                self._waiting += 1

    def _answer(self, descriptor: int) -> None:
        listener = self._listeners.get(descriptor)
        if listener is not None:
            self._accept(listener)
            self._listen(listener)
            return
        connection = self._idle.pop(descriptor, None)
        if connection is not None:
            self._serve(connection)

    def _listen(self, listener: socket.socket) -> None:
        """Hear of the next connection, unless there are as many as may be; then the next tick asks again."""
        if self.nr_conns >= self.worker_connections:
            return
        with suppress(OSError, ValueError):  # closed at the end
            self._epoll.modify(listener, ONE_THREAD)

    def _accept_waiting(self, listener: socket.socket) -> None:
        """Accept what a worker that has ended, or holds still, left on its socket."""
        while self.nr_conns < self.worker_connections and self._accept(listener):
            pass

    def _accept(self, listener: socket.socket) -> bool:
        """Accept one connection; whether there was one."""
        with self._counts:
            self.nr_conns += 1  # before it is accepted, for a worker that drains ends when it counts none
        try:
            client, address = listener.accept()
        except (BlockingIOError, ConnectionAbortedError):
            self._forget()
            return False
        except OSError as error:
            self._forget()
            log.warning("a connection can't be accepted: %s", error)
            time.sleep(MOMENT_SECONDS)
            return False
        connection = TConn(self.cfg, client, address, listener.getsockname())
        client.setblocking(True)
        self._epoll.register(client, 0)
        self._await(connection)
        return True

    def _serve(self, connection: TConn) -> None:
        kept = False
        try:
            kept = self._next_request(connection)
            while kept and connection.initialized and connection.parser.unreader.buf.getvalue():
                kept = self.handle(connection)
        finally:
            if kept:
                self._await(connection)
            else:
                self._close(connection)

    def _next_request(self, connection: TConn) -> bool:
        """Answer one request; whether the connection can take another."""
        try:
            data = connection.sock.recv(READ_BYTES)
        except OSError:
            return False
        request = plain_request(data, connection.sock) if self._plain else None
        if request is not None:
            return self._answer_plainly(request, connection)
        if data:
            connection.data_ready = True
            connection.init()
            connection.parser.unreader.unread(data)
            return bool(self.handle(connection))
        return False

    def _answer_plainly(self, request: PlainRequest, connection: TConn) -> bool:
        response, environ = wsgi.create(
            request,
            connection.sock,
            connection.client,
            connection.server,
            self.cfg,
            PromptResponse,
            (lambda: not self.alive,),
        )
        environ["wsgi.multithread"] = True
        self._count_request()
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
            log.debug("a client was gone: %s", error)
            return False
        except Exception as error:
            if response.headers_sent:
                log.exception("an answer broke off")
            else:
                self.handle_error(request, connection.sock, connection.client, error)
            return False
        return not request.body.left and not response.should_close()

    def _count_request(self) -> None:
        self.nr += 1
        if self.nr >= self.max_requests and self.alive:
            log.info("this worker has served its %d requests, and starts anew", self.nr)
            self.alive = False

    def _await(self, connection: TConn) -> None:
        """Leave a connection to whichever thread is free when it says something."""
        connection.set_timeout()
        descriptor = connection.sock.fileno()
        self._idle[descriptor] = connection
        self._epoll.modify(descriptor, ONE_THREAD)

    def _close(self, connection: TConn) -> None:
        self._forget()
        connection.close(graceful=True)

    def _forget(self) -> None:
        with self._counts:
            self.nr_conns -= 1


def _is_readable(descriptor: int) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(0))
