"""The ``gthread`` worker class on Linux: every thread takes a request off the wire and serves it to its end.

gunicorn's own class waits for connections in one thread and hands each request to another and back, which
costs more than a small request does. This module is all that touches gunicorn's own thread worker.
"""

import logging
import selectors
import shutil
import socket
import time
from contextlib import closing

from gunicorn.workers.gthread import STOP_KEEPALIVE_LINGER
from gunicorn.workers.gthread import ThreadWorker as GunicornThreadWorker

from tfs_proxy.resources import most_descriptors
from tfs_proxy.script.deadline import ScriptCall
from tfs_proxy.upstream.instances import fetch_deployment
from tfs_proxy.web.workers.base import ContainerWorker
from tfs_proxy.web.workers.plain_request import PlainRequest, Source, plain_request
from tfs_proxy.web.workers.refusals import NO_ROOM
from tfs_proxy.web.workers.threads.arrival import RECEIVE_BYTES, Arrival, Budget, NoRoom, Room
from tfs_proxy.web.workers.threads.client import ClientConnection
from tfs_proxy.web.workers.threads.connections import WorkerConnections
from tfs_proxy.web.workers.threads.plain_environ import PlainEnvirons
from tfs_proxy.web.workers.threads.poller import Poller
from tfs_proxy.web.workers.threads.prompt_response import PromptResponse
from tfs_proxy.web.workers.worker_sockets import WorkerSockets
from tfs_proxy.worker_environment import worker_workspace

log = logging.getLogger(__name__)

READ_BYTES = 64 * 1024
DISK_SHARE = 0.8
"""Of what is free on the disk at the start: the rest is for the script, and for logs."""

GO_ON = b"HTTP/1.1 100 Continue\r\n\r\n"
TICK_SECONDS, DRAIN_TICK_SECONDS = 0.25, 0.05
IDLE_TICK_SECONDS, IDLE_AFTER_SECONDS = 1.0, 2.0
"""A tick costs 0.2 ms, so that a worker without requests takes fewer."""

NGINX_LINGER_SECONDS = 0.1
"""How long a connection from nginx stays open at the end; nginx sends again what comes later."""


class ThreadWorker(ContainerWorker, GunicornThreadWorker):  # type: ignore[misc]  # gunicorn has no types
    """Up to ``--threads`` threads, and one more for each call of the script that hangs."""

    alive: bool

    def init_process(self) -> None:
        """Prepare, then load the application and run."""
        self._poller = Poller(self._serve_descriptor, lambda: self._most_at_work)
        most = min(self.worker_connections, most_descriptors() // 2)
        self._connections = WorkerConnections(self._poller, self._open, most)
        self._worker_sockets = WorkerSockets(worker_workspace().worker_sockets)
        self._plain = not (self.log.access_log_enabled or self.cfg.is_ssl)
        self._counted, self._busy_at = 0, time.monotonic()
        # gunicorn's timeout may be a second: its master must see a sign of life in time.
        self._idle_tick_seconds = min(IDLE_TICK_SECONDS, (self.cfg.timeout or 2 * IDLE_TICK_SECONDS) / 2)
        super().init_process()

    def load_wsgi(self) -> None:
        """As in the base, then see what all requests share: the environ, and room for bodies that arrive."""
        super().load_wsgi()
        self._environs = PlainEnvirons(self.cfg)
        workspace = worker_workspace()
        deployment = fetch_deployment(workspace.control_socket)
        limit_bytes = deployment.max_payload_bytes
        free_bytes = shutil.disk_usage(workspace.root).free
        disk = Budget(max(limit_bytes, int(free_bytes * DISK_SHARE / self.cfg.workers)))
        self._room = Room(limit_bytes, workspace.root, disk, bodies=not workspace.nginx.exists())

    def _open(self, client: socket.socket, address: object, server: object) -> ClientConnection:
        connection = ClientConnection(self.cfg, client, address, server)
        connection.unserved = self.count_unserved
        if self._room.bodies:
            connection.limit_sending()
        return connection

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
        """Show a sign of life, sleep, close idle connections, and accept what other workers leave waiting."""
        self.notify()
        self.wait_for_and_dispatch_events(self._pause_seconds())
        self._connections.close_idle(time.monotonic())
        self._connections.accept_waiting(self._most_at_work)

    def _pause_seconds(self) -> float:
        now = time.monotonic()
        if self.nr != self._counted or self._connections.at_work:
            self._counted, self._busy_at = self.nr, now
        return TICK_SECONDS if now < self._busy_at + IDLE_AFTER_SECONDS else self._idle_tick_seconds

    def _drain(self) -> None:
        """Accept no more; let requests in flight end, and idle clients send one that is on its way."""
        self._connections.stop_listening()
        began = time.monotonic()
        linger_seconds = STOP_KEEPALIVE_LINGER if self._room.bodies else NGINX_LINGER_SECONDS
        while (
            self._connections.count > self._hanging and time.monotonic() < began + self.cfg.graceful_timeout
        ):
            self.notify()
            self.wait_for_and_dispatch_events(DRAIN_TICK_SECONDS)
            self._connections.limit_idleness(began + linger_seconds)
            self._connections.close_idle(time.monotonic())

    @property
    def most_hanging(self) -> int:
        """As many as may be connected: a new thread replaces each one that hangs."""
        return int(self.worker_connections)

    @property
    def _most_at_work(self) -> int:
        return int(self.cfg.threads) + self._hanging

    @property
    def _hanging(self) -> int:
        return int(self.watch.hanging)

    def abandon(self, call: ScriptCall) -> None:
        """As in the base; another thread replaces the one that hangs."""
        super().abandon(call)
        self._poller.add_thread()

    def prepare_for_replacement(self) -> None:
        """As in the base; the worker that replaces this one takes its socket."""
        self._worker_sockets.leave()
        super().prepare_for_replacement()

    def _serve_descriptor(self, descriptor: int) -> None:
        connection = self._connections.take(descriptor)
        if connection is not None:
            self._serve(connection)

    def _serve(self, connection: ClientConnection) -> None:
        kept = False
        try:
            if connection.ends:
                self._connections.go_on_ending(connection)
                return
            kept = self._receive(connection)
            while kept and connection.rest:
                data, connection.rest = connection.rest, b""
                kept = self._take_in(connection, data)
        finally:
            if kept:
                self._connections.keep(connection)
            elif not connection.ends:
                self._connections.end(connection)

    def _receive(self, connection: ClientConnection) -> bool:
        """Take in what the client has sent, without waiting; whether the connection can take more."""
        try:
            data = connection.sock.recv(READ_BYTES, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return bool(data) and self._take_in(connection, data)

    def _take_in(self, connection: ClientConnection, data: bytes) -> bool:
        """Answer the request if it is whole with this, else wait for more of it."""
        if connection.arrival is None:
            request = plain_request(data, connection.sock) if self._plain else None
            if request is not None and (request.body.is_here or not self._room.bodies):
                return self._answer_plainly(request, connection)
            connection.arrival = Arrival(self._room)
        try:
            return self._add(connection, connection.arrival, data)
        except NoRoom:
            log.warning("refused with 503: %s", NO_ROOM.text)
            connection.refuse(NO_ROOM)
        except OSError as error:
            log.debug("a client was gone: %s", error)
        return False

    def _add(self, connection: ClientConnection, arrival: Arrival, data: bytes) -> bool:
        while not arrival.add(data):
            if arrival.asks_for_body:
                connection.sock.send(GO_ON, socket.MSG_DONTWAIT)
            try:
                data = connection.sock.recv(RECEIVE_BYTES, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return True
            if not data:
                return False
        connection.arrival = None
        with closing(arrival):
            return self._answer_arrived(connection, arrival)

    def _answer_arrived(self, connection: ClientConnection, arrival: Arrival) -> bool:
        if not self._room.bodies:
            return self._answer_by_gunicorn(connection, arrival.head + arrival.rest)
        connection.rest = arrival.rest
        request = plain_request(arrival.head, arrival) if self._plain else None
        if request is not None:
            arrival.skip_head()
            return self._answer_plainly(request, connection)
        return self._answer_by_gunicorn(connection, b"", arrival)

    def _answer_by_gunicorn(
        self, connection: ClientConnection, data: bytes, source: Source | None = None
    ) -> bool:
        connection.data_ready = True
        connection.init()
        unreader = connection.parser.unreader
        unreader.sock = source or connection.sock
        unreader.unread(data)
        kept = bool(self.handle(connection))
        left = unreader.take_buffered()
        if source is None:
            connection.rest = left
            return kept
        return kept and not left  # with bytes left it is not certain where the next request begins

    def _answer_plainly(self, request: PlainRequest, connection: ClientConnection) -> bool:
        # What is left of a refused request's body would be taken for the next request.
        response = PromptResponse(
            request, connection.sock, self.cfg, lambda: not self.alive or request.body.left > 0
        )
        self._count_request()
        try:
            pieces = self.wsgi(self._environs.of(request, connection), response.start_response)
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
        return not response.should_close() and not request.body.left

    def _count_request(self) -> None:
        self.nr += 1
        if self.nr >= self.max_requests and self.alive:
            log.info("this worker has served its %d requests, and starts anew", self.nr)
            self.alive = False
