"""Pooled keep-alive HTTP/1.1 connections to one address: what `rest` sends its requests over."""

import _socket
import select
import socket
import struct
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from socket import SO_RCVTIMEO, SO_SNDTIMEO

from tfs_proxy.errors import NotReached, UpstreamTimeout, UpstreamUnavailable
from tfs_proxy.wire.http_answer import BrokenAnswer, Reply, read_reply

_READ_BYTES = 1 << 16
_SMALL_BYTES = 1 << 16

_TIMEVAL = struct.Struct("ll").pack

Connect = Callable[[str, int, float | None], socket.socket]
"""Opens a connection to host and port, within a time in seconds, None for any; raises OSError."""


@dataclass(frozen=True, slots=True)
class Timeouts:
    """How long the parts of one request may take.

    ``call_seconds`` is for a request and its whole answer: bytes that drip do not renew it.
    ``write_seconds`` is for the server to take the request.
    """

    call_seconds: float
    connect_seconds: float = 5.0
    write_seconds: float = 30.0


def connect_tcp(host: str, port: int, timeout_seconds: float | None) -> socket.socket:
    """A plain TCP connection, which sends small packets at once; it has no timeout yet."""
    connected = socket.create_connection((host, port), timeout_seconds)
    connected.settimeout(None)
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connected


def set_timeout(connection: socket.socket, seconds: float | None, option: int) -> None:
    """Let the kernel end what takes longer, as BlockingIOError; gevent's sockets have a TimeoutError.

    PERF: with a timeout of Python's own every step asks the kernel twice, and gives the interpreter's lock
    away twice, which costs more than the step where many threads want it. ``seconds`` of None is for ever.
    """
    if isinstance(connection, _socket.socket):
        microseconds = 0 if seconds is None else max(1, int(seconds * 1e6))
        connection.setsockopt(socket.SOL_SOCKET, option, _TIMEVAL(*divmod(microseconds, 1_000_000)))
    else:
        connection.settimeout(seconds)


class Connections:
    """Connections to one model server, shared by threads: each is used by one at a time.

    Idle ones are kept, at most ``idle`` of them. A request goes out again, once and on a new
    connection, where an idle one turns out to have been closed by the server before any byte of
    an answer was read.
    """

    def __init__(
        self,
        host: str,
        port: int,
        timeouts: Timeouts,
        *,
        idle: int = 256,
        connect: Connect = connect_tcp,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._host = host
        self._port = port
        self._host_header = f"Host: {host}:{port}\r\n"
        self._timeouts = timeouts
        self._idle: deque[socket.socket] = deque()
        self._most_idle = idle
        self._connect = connect
        self._clock = clock
        self._closed = False

    def request(
        self,
        method: str,
        path: str,
        body: bytes | None,
        headers: Mapping[str, str],
        timeout_seconds: float | None = None,
    ) -> Reply:
        """Send one request and read its answer; ``timeout_seconds`` in place of the pool's own.

        ``method``, ``path`` and ``headers`` must be fit for the wire. Raises NotReached where no
        connection opens, UpstreamUnavailable where one breaks, and UpstreamTimeout where a part takes
        too long.
        """
        seconds = self._timeouts.call_seconds if timeout_seconds is None else timeout_seconds
        head = self._head(method, path, body, headers)
        limit = Deadline(seconds, self._timeouts.write_seconds, self._clock)
        return self._request(
            _Exchange(head, body or b"", limit), min(self._timeouts.connect_seconds, seconds)
        )

    def request_patiently(
        self, method: str, path: str, body: bytes | None, headers: Mapping[str, str], patience: "Patience"
    ) -> Reply:
        """The same with a time for each step and none for the whole, as `requests` counts."""
        exchange = _Exchange(self._head(method, path, body, headers), body or b"", patience)
        return self._request(exchange, patience.connect_seconds)

    def _request(self, exchange: "_Exchange", connect_seconds: float | None) -> Reply:
        kept = self._take()
        if kept is not None:
            with suppress(ConnectionError):
                return self._run(exchange, kept)
        try:
            fresh = self._open(connect_seconds)
        except NotReached as error:
            if kept is None:
                raise
            # The request was sent: it may be what ended the server, and must count as that.
            raise UpstreamUnavailable("The model server closed the connection without an answer.") from error
        try:
            return self._run(exchange, fresh)
        except ConnectionError as error:
            raise UpstreamUnavailable("The model server closed the connection without an answer.") from error

    def close(self) -> None:
        """Close what is idle; connections in use are closed when they come back."""
        self._closed = True
        while self._idle:
            self._idle.pop().close()

    def _head(self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]) -> bytes:
        lines = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
        length = "" if body is None else f"Content-Length: {len(body)}\r\n"
        host = "" if "Host" in headers else self._host_header
        return f"{method} {path} HTTP/1.1\r\n{host}{lines}{length}\r\n".encode("latin-1")

    def _open(self, seconds: float | None) -> socket.socket:
        try:
            return self._connect(self._host, self._port, seconds)
        except OSError as error:
            raise NotReached("The model server can't be reached.") from error

    def _take(self) -> socket.socket | None:
        """The idle connection used last that the server has not closed meanwhile."""
        while True:
            try:
                kept = self._idle.pop()
            except IndexError:
                return None
            if not _is_readable(kept):
                return kept
            kept.close()

    def _run(self, exchange: "_Exchange", connection: socket.socket) -> Reply:
        """One request on an open connection; ConnectionError means that no answer had begun."""
        kept = False
        try:
            reply = exchange.run(connection)
            kept = reply.keeps
        finally:
            if kept and not self._closed and len(self._idle) < self._most_idle:
                self._idle.append(connection)
            else:
                connection.close()
        return reply


class _Exchange:
    """One request and its answer, on whichever connection, within one limit."""

    __slots__ = ("_body", "_connection", "_head", "_limit", "_started")

    def __init__(self, head: bytes, body: bytes, limit: "Deadline | Patience") -> None:
        self._head = head
        self._body = body
        self._limit = limit

    def run(self, connection: socket.socket) -> Reply:
        """Send and read; raises ConnectionError where the connection ends before an answer begins."""
        self._connection = connection
        self._started = False
        try:
            broken = self._send()
            try:
                return read_reply(self._receive)
            except (ConnectionError, BrokenAnswer):
                if broken is not None and not self._started:
                    raise broken from None
                raise
        except BrokenAnswer as error:
            raise UpstreamUnavailable("The model server's answer is no HTTP, or breaks off.") from error

    def _send(self) -> ConnectionError | None:
        """Send the request; a connection that breaks meanwhile may still hold an answer (413)."""
        seconds = self._limit.to_write()
        set_timeout(self._connection, seconds, SO_SNDTIMEO)
        try:
            if len(self._body) <= _SMALL_BYTES:
                self._connection.sendall(self._head + self._body)
            else:
                self._connection.sendall(self._head)
                self._connection.sendall(self._body)
        except (TimeoutError, BlockingIOError) as error:
            raise UpstreamTimeout(
                f"The model server did not take the request within {seconds} seconds."
            ) from error
        except ConnectionError as error:
            return error
        return None

    def _receive(self) -> bytes:
        set_timeout(self._connection, self._limit.to_read(), SO_RCVTIMEO)
        try:
            part = self._connection.recv(_READ_BYTES)
        except (TimeoutError, BlockingIOError) as error:
            raise self._limit.over() from error
        except ConnectionError as error:
            if self._started:
                raise BrokenAnswer("the connection broke") from error
            raise
        self._started = self._started or bool(part)
        return part


class Deadline:
    """One time for a request and its whole answer, and one for the server to take the request."""

    __slots__ = ("_clock", "_end", "_seconds", "_write_seconds")

    def __init__(self, seconds: float, write_seconds: float, clock: Callable[[], float]) -> None:
        self._seconds = seconds
        self._write_seconds = write_seconds
        self._clock = clock
        self._end = clock() + seconds

    def to_write(self) -> float:
        """Seconds for the server to take the request; raises UpstreamTimeout where none are left."""
        return min(self._write_seconds, self.to_read())

    def to_read(self) -> float:
        """Seconds that are left; raises UpstreamTimeout where none are."""
        remaining = self._end - self._clock()
        if remaining <= 0:
            raise self.over()
        return remaining

    def over(self) -> UpstreamTimeout:
        """What to raise when time is over."""
        return UpstreamTimeout(f"The model server did not answer within {self._seconds:g} seconds.")


@dataclass(frozen=True, slots=True)
class Patience:
    """A time for the connection and one for every step after it, as `requests` has them; None for any."""

    connect_seconds: float | None
    step_seconds: float | None

    def to_write(self) -> float | None:
        """Seconds for the next part of the request."""
        return self.step_seconds

    def to_read(self) -> float | None:
        """Seconds until more of the answer must come."""
        return self.step_seconds

    def over(self) -> UpstreamTimeout:
        """What to raise when nothing came in time."""
        return UpstreamTimeout(f"The model server sent nothing for {self.step_seconds} seconds.")


def _is_readable(connection: socket.socket) -> bool:
    """Whether an idle connection has something to read: its end, or an answer nobody asked for."""
    poll = select.poll()
    poll.register(connection, select.POLLIN)
    return bool(poll.poll(0))
