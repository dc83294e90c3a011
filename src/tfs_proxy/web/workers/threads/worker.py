"""The ``gthread`` worker class on Linux: every thread takes a request off the wire and serves it to its end.

gunicorn's own class waits for connections in one thread and hands each request to another and back, which
costs more than a small request does. This module is all that touches gunicorn's own thread worker.
"""

import logging
import selectors
import socket
import time
from collections.abc import Callable
from typing import Any

from gunicorn.http import wsgi
from gunicorn.workers.gthread import STOP_KEEPALIVE_LINGER, TConn
from gunicorn.workers.gthread import ThreadWorker as GunicornThreadWorker

from tfs_proxy.script.deadline import ScriptCall
from tfs_proxy.web.workers.base import ContainerWorker
from tfs_proxy.web.workers.plain_request import PlainRequest, plain_request
from tfs_proxy.web.workers.threads.connections import WorkerConnections
from tfs_proxy.web.workers.threads.poller import Poller
from tfs_proxy.web.workers.worker_sockets import WorkerSockets
from tfs_proxy.worker_environment import worker_workspace

log = logging.getLogger(__name__)

READ_BYTES = 16 * 1024
TICK_SECONDS, DRAIN_TICK_SECONDS = 0.25, 0.05


class PromptResponse(wsgi.Response):  # type: ignore[misc]  # gunicorn has no types
    """Sends head and body at once, and closes the connection if ``ends`` says so by then."""

    headers_sent: bool

    def __init__(
        self, request: PlainRequest, connection: socket.socket, cfg: Any, ends: Callable[[], bool]
    ) -> None:
        super().__init__(request, connection, cfg)
        self._ends = ends

    def should_close(self) -> bool:
        """Whether this answer is the connection's last."""
        return self._ends() or super().should_close()

    def write(self, arg: bytes) -> None:
        """Send a piece of the body; the head goes with it if the piece is the whole body."""
        if self.headers_sent or self.chunked or len(arg) != self.response_length:
            super().write(arg)
            return
        lines = (*self.default_headers(), *(f"{name}: {value}\r\n" for name, value in self.headers), "\r\n")
        self.headers_sent = True
        self.sent = len(arg)
        self.sock.sendall("".join(lines).encode("latin-1") + arg)


class ThreadWorker(ContainerWorker, GunicornThreadWorker):  # type: ignore[misc]  # gunicorn has no types
    """Up to ``--threads`` threads, and one more for each call of the script that hangs."""

    alive: bool

    def init_process(self) -> None:
        """Prepare, then load the application and run."""
        self._poller = Poller(self._serve_descriptor, lambda: int(self.cfg.threads) + self._hanging)
        self._connections = WorkerConnections(self._poller, self._open, self.worker_connections)
        self._worker_sockets = WorkerSockets(worker_workspace().worker_sockets)
        self._plain = not (self.log.access_log_enabled or self.cfg.is_ssl)
        super().init_process()

    def _open(self, client: socket.socket, address: object, server: object) -> TConn:
        return TConn(self.cfg, client, address, server)

    def serve(self) -> None:
        """Serve until told to end, then finish what is in flight."""
        self.poller.register(
            self.method_queue.fileno(), selectors.EVENT_READ, self.method_queue.run_callbacks
        )
        self._connections.listen(*self._worker_sockets.take(self.sockets))
        self._poller.add_thread()
        while self.alive and self.is_parent_alive():
            self._tick()
        self._drain()
        self._poller.stop()

    def _tick(self) -> None:
        """Send a heartbeat, sleep, close idle connections, and accept what other workers leave waiting."""
        self.notify()
        self.wait_for_and_dispatch_events(TICK_SECONDS)
        self._connections.close_idle(time.monotonic())
        self._connections.accept_waiting()

    def _drain(self) -> None:
        """Accept no more; let requests in flight end, and idle clients send one that is on its way."""
        self._connections.stop_listening()
        began = time.monotonic()
        while (
            self._connections.count > self._hanging and time.monotonic() < began + self.cfg.graceful_timeout
        ):
            self.notify()
            self.wait_for_and_dispatch_events(DRAIN_TICK_SECONDS)
            self._connections.limit_idleness(began + STOP_KEEPALIVE_LINGER)
            self._connections.close_idle(time.monotonic())

    @property
    def most_hanging(self) -> int:
        """As many as may be connected: a new thread replaces each one that hangs."""
        return int(self.worker_connections)

    @property
    def _hanging(self) -> int:
        return int(self.watch.hanging)

    def abandon(self, call: ScriptCall) -> None:
        """As in the base; another thread replaces the one that hangs."""
        super().abandon(call)
        self._poller.add_thread()

    def tell(self) -> None:
        """As in the base; the worker that replaces this one takes its socket."""
        if self.watch.hangs:
            self._worker_sockets.leave()
        super().tell()

    def _serve_descriptor(self, descriptor: int) -> None:
        connection = self._connections.take(descriptor)
        if connection is not None:
            self._serve(connection)

    def _serve(self, connection: TConn) -> None:
        kept = False
        try:
            kept = self._next_request(connection)
            while kept and connection.initialized and connection.parser.unreader.buf.getvalue():
                kept = self.handle(connection)
        finally:
            if kept:
                self._connections.keep(connection)
            else:
                self._connections.close(connection)

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
