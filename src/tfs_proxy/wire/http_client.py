"""The package's HTTP client: pooled HTTP/1.1 connections, with one request at a time on each."""

import asyncio
import socket
import ssl
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from functools import partial
from socket import SO_RCVTIMEO, SO_SNDTIMEO

from tfs_proxy.settings.settings import most_answer_bytes
from tfs_proxy.values.errors import AnswerTooLarge, NotReached, UpstreamTimeout, UpstreamUnavailable
from tfs_proxy.wire import error_body
from tfs_proxy.wire.connect import Connect, authority, connect_tcp, has_unread, has_unread_tcp, set_timeout
from tfs_proxy.wire.http_answer import BrokenAnswer, read_response
from tfs_proxy.wire.http_messages import HttpResponse

MOST_PAGE_BYTES = 64 << 20
"""Limit of an answer about a server itself, such as its metrics; those with predictions have a setting."""

LOOK_SECONDS = 0.1
"""Pause in which who waits for an answer asks whether it is still wanted."""

_READ_BYTES = 1 << 16
_SMALL_BYTES = 1 << 16
_AT_ONCE_BYTES = 1 << 12
"""PERF: size of a request that needs no timeout, since the kernel takes it at once on an idle connection."""

Look = Callable[[], object]
"""Function that raises an exception once an answer is no longer wanted."""

Pieces = Callable[[], Iterable[bytes]]
"""Function that makes the pieces of a body that is sent in chunks, from its beginning."""


class Deadline:
    """Time limits of a request: for its whole answer, and for the server to take the request."""

    __slots__ = ("_end", "_seconds", "_write_seconds", "server")

    def __init__(self, server: str, seconds: float, write_seconds: float) -> None:
        self.server = server
        self._seconds = seconds
        self._write_seconds = write_seconds
        self._end = time.monotonic() + seconds

    def to_write(self) -> float:
        """Seconds left for the server to take the request. Raises UpstreamTimeout if none are left."""
        return min(self._write_seconds, self.to_read())

    def to_read(self) -> float:
        """Seconds left for the answer. Raises UpstreamTimeout if none are."""
        remaining = self._end - time.monotonic()
        if remaining <= 0:
            raise self.over()
        return remaining

    def restart(self) -> None:
        """Starts the time again, after a body in pieces has been sent."""
        self._end = time.monotonic() + self._seconds

    def over(self) -> UpstreamTimeout:
        return UpstreamTimeout(error_body.not_answered(self.server, self._seconds))


class Exchange:
    """One request and its answer of at most ``most_bytes``, on any connection, before one deadline.

    While the answer is waited for, ``look`` may end that.
    """

    __slots__ = ("_body", "_connection", "_deadline", "_head", "_look", "_most_bytes", "_received", "_server")

    def __init__(
        self,
        server: str,
        head: bytes,
        body: bytes | Pieces,
        deadline: Deadline,
        most_bytes: int,
        look: Look | None,
    ) -> None:
        self._server = server
        self._most_bytes = most_bytes
        self._look = look
        self._head = head
        self._body = body
        self._deadline = deadline

    @property
    def streams(self) -> bool:
        return not isinstance(self._body, bytes)

    def answered_on(self, connection: socket.socket) -> HttpResponse:
        """Send the request, and read its answer. Raises ConnectionError if none begins."""
        self._connection = connection
        self._received = 0
        try:
            broken = self._send()
            try:
                return read_response(self._receive)
            except (ConnectionError, BrokenAnswer):
                if broken is not None and not self._received:
                    raise broken from None
                raise
        except BrokenAnswer as error:
            raise UpstreamUnavailable(f"{self._server}'s answer is not HTTP, or breaks off.") from error

    def _send(self) -> ConnectionError | None:
        """Sends the request; after a broken connection there may still be an answer (413)."""
        seconds = self._deadline.to_write()
        if not isinstance(self._body, bytes) or len(self._head) + len(self._body) > _AT_ONCE_BYTES:
            set_timeout(self._connection, seconds, SO_SNDTIMEO)
        try:
            send = self._connection.sendall
            body = self._body
            if not isinstance(body, bytes):
                send(self._head)
                for piece in filter(None, body()):
                    send(b"%x\r\n%b\r\n" % (len(piece), piece))
                send(b"0\r\n\r\n")
                self._deadline.restart()
            elif len(body) <= _SMALL_BYTES:
                send(self._head + body)
            else:
                send(self._head)
                send(body)
        except (TimeoutError, BlockingIOError) as error:
            raise UpstreamTimeout(
                f"{self._server} did not take the request within {seconds} seconds."
            ) from error
        except ConnectionError as error:
            return error
        except ssl.SSLError as error:
            return ConnectionResetError(str(error))
        return None

    def _receive(self) -> bytes:
        left = self._deadline.to_read()
        try:
            while self._look is not None and left > LOOK_SECONDS:
                set_timeout(self._connection, LOOK_SECONDS, SO_RCVTIMEO)
                with suppress(TimeoutError, BlockingIOError):
                    part = self._connection.recv(_READ_BYTES)
                    break
                self._look()
                left -= LOOK_SECONDS
            else:
                set_timeout(self._connection, left, SO_RCVTIMEO)
                part = self._connection.recv(_READ_BYTES)
        except (TimeoutError, BlockingIOError) as error:
            raise self._deadline.over() from error
        except (ConnectionError, ssl.SSLError) as error:
            if self._received:
                raise BrokenAnswer("the connection broke") from error
            raise ConnectionResetError(str(error)) from error
        self._received += len(part)
        if self._received > self._most_bytes:
            raise AnswerTooLarge(error_body.answer_too_large(self._server, self._most_bytes))
        return part


class ConnectionPool:
    """Connections to one server, shared by threads: each is used by one at a time.

    At most ``idle`` unused ones are kept. A request is repeated, once and on a new connection, if the server
    has closed a kept one before any byte of an answer was read. ``server`` is the subject of the sentences in
    errors. An answer has at most ``most_bytes``; None is the setting's limit.

    A request has ``seconds`` for its whole answer, however slow; a body in pieces is not counted.
    The connection has ``connect_seconds`` of them, the request or one of its pieces ``write_seconds``.
    """

    def __init__(
        self,
        host: str,
        port: int,
        seconds: float,
        *,
        connect_seconds: float = 5.0,
        write_seconds: float = 30.0,
        idle: int = 256,
        connect: Connect = connect_tcp,
        server: str = error_body.MODEL_SERVER,
        most_bytes: int | None = None,
    ) -> None:
        self._host = host
        self._port = port
        self._host_header = f"Host: {authority(host, port)}\r\n"
        self._seconds = seconds
        self._connect_seconds = connect_seconds
        self._write_seconds = write_seconds
        self._idle: deque[socket.socket] = deque()
        self._most_idle = idle
        self._connect = connect
        self._has_unread = has_unread_tcp if connect is connect_tcp else has_unread
        self._server = server
        self._most_bytes = most_answer_bytes() if most_bytes is None else most_bytes
        self._closed = False

    def request(
        self,
        method: str,
        path: str,
        body: bytes | Pieces | None,
        headers: Mapping[str, str],
        limit: float | None = None,
        look: Look | None = None,
    ) -> HttpResponse:
        """Sends one request and reads its answer; ``limit`` replaces the pool's own seconds.

        ``look`` is called ten times a second until the answer comes; what it raises ends the connection.
        ``method``, ``path`` and ``headers`` must be fit for the wire. A body in pieces is sent on a
        connection of its own, and never repeated. Raises NotReached if no connection opens,
        UpstreamUnavailable if one breaks, UpstreamTimeout if a part takes too long, and AnswerTooLarge.
        """
        seconds = self._seconds if limit is None else limit
        deadline = Deadline(self._server, seconds, self._write_seconds)
        head = self.head(method, path, body, headers)
        exchange = Exchange(self._server, head, body or b"", deadline, self._most_bytes, look)
        kept = None if exchange.streams else self._take()
        if kept is not None:
            with suppress(ConnectionError):
                return self._run(exchange, kept)
        try:
            fresh = self.open(seconds)
        except NotReached as error:
            if kept is None:
                raise
            # The request was sent, and may have ended the server: it is no NotReached.
            raise UpstreamUnavailable(error_body.connection_closed(self._server)) from error
        try:
            return self._run(exchange, fresh)
        except ConnectionError as error:
            raise UpstreamUnavailable(error_body.connection_closed(self._server)) from error

    def close(self) -> None:
        """Closes idle connections; others are closed when they are returned."""
        self._closed = True
        while self._idle:
            self._idle.pop().close()

    def head(self, method: str, path: str, body: bytes | Pieces | None, headers: Mapping[str, str]) -> bytes:
        """Write request line and headers, to the empty line."""
        lines = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
        host = "" if "Host" in headers else self._host_header
        if isinstance(body, bytes):
            lines += f"Content-Length: {len(body)}\r\n"
        elif body is not None:
            lines += "Transfer-Encoding: chunked\r\n"
        return f"{method} {path} HTTP/1.1\r\n{host}{lines}\r\n".encode("latin-1")

    def open(self, seconds: float) -> socket.socket:
        """Open a connection that is the caller's own, for a call of so many seconds. Raises NotReached."""
        try:
            return self._connect(self._host, self._port, min(self._connect_seconds, seconds))
        except OSError as error:
            raise NotReached(error_body.not_reached(self._server)) from error

    def _take(self) -> socket.socket | None:
        """The most recently used idle connection that the server has not closed."""
        while True:
            try:
                kept = self._idle.pop()
            except IndexError:
                return None
            if not self._has_unread(kept):
                return kept
            kept.close()

    def _run(self, exchange: Exchange, connection: socket.socket) -> HttpResponse:
        """One request on an open connection; ConnectionError means that no answer had begun."""
        keeps = False
        try:
            response = exchange.answered_on(connection)
            keeps = response.keeps_connection and not exchange.streams
        finally:
            if keeps and not self._closed and len(self._idle) < self._most_idle:
                self._idle.append(connection)
            else:
                connection.close()
        return response


def get(
    host: str,
    port: int,
    path: str,
    timeout_seconds: float,
    headers: Mapping[str, str] | None = None,
    *,
    connect: Connect = connect_tcp,
    server: str = error_body.MODEL_SERVER,
) -> HttpResponse:
    """GET ``path`` once, on a connection of its own. Raises as `ConnectionPool.request` does."""
    pool = ConnectionPool(
        host,
        port,
        timeout_seconds,
        connect_seconds=timeout_seconds,
        idle=0,
        connect=connect,
        server=server,
        most_bytes=MOST_PAGE_BYTES,
    )
    with closing(pool) as connections:
        return connections.request("GET", path, None, {"Connection": "close", **(headers or {})})


_threads = ThreadPoolExecutor(64, thread_name_prefix="http-get")
"""Threads for `get_async`: a hung server blocks one for its whole time, and asyncio has few."""


async def get_async(host: str, port: int, path: str, timeout_seconds: float) -> HttpResponse:
    """`get` for a coroutine: a thread waits for the answer."""
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(_threads, partial(get, host, port, path, timeout_seconds))
