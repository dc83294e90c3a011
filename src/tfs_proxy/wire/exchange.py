"""One request and its response over an open connection, within one limit of time."""

import _socket
import socket
import ssl
import struct
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from socket import SO_RCVTIMEO, SO_SNDTIMEO
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from tfs_proxy.errors import UpstreamTimeout, UpstreamUnavailable
from tfs_proxy.wire.error_body import MODEL_SERVER, connection_closed, not_answered
from tfs_proxy.wire.http_answer import BrokenAnswer, ComingAnswer, Receive, read_coming, read_response
from tfs_proxy.wire.http_messages import HttpResponse

_READ_BYTES = 1 << 16
_SMALL_BYTES = 1 << 16
_AT_ONCE_BYTES = 1 << 12
"""PERF: the kernel takes so much without waiting if nothing is on its way, so that it needs no timeout."""

_TIMEVAL = struct.Struct("ll").pack

Answer = TypeVar("Answer")

Pieces = Callable[[], Iterable[bytes]]
"""Makes the pieces of a body that is sent in chunks, from its beginning."""


class Deadline:
    """One time for a request and its whole answer, and one for the server to take the request."""

    __slots__ = ("_clock", "_end", "_seconds", "_server", "_write_seconds")

    def __init__(self, server: str, seconds: float, write_seconds: float, clock: Callable[[], float]) -> None:
        self._server = server
        self._seconds = seconds
        self._write_seconds = write_seconds
        self._clock = clock
        self._end = clock() + seconds

    def to_write(self) -> float:
        """Seconds for the server to take the request; raises UpstreamTimeout if none are left."""
        return min(self._write_seconds, self.to_read())

    def to_read(self) -> float:
        """Seconds that are left; raises UpstreamTimeout if none are."""
        remaining = self._end - self._clock()
        if remaining <= 0:
            raise self.over()
        return remaining

    def restart(self) -> None:
        """Begin to count anew, now that a body in pieces has been sent."""
        self._end = self._clock() + self._seconds

    def over(self) -> UpstreamTimeout:
        """What to raise when time is over."""
        return UpstreamTimeout(not_answered(self._server, self._seconds))


class Patience(Struct, frozen=True):
    """A time for the connection and one for every step after it, as `requests` has them; None for any."""

    connect_seconds: float | None
    step_seconds: float | None

    def to_write(self) -> float | None:
        """Seconds for the next part of the request."""
        return self.step_seconds

    def to_read(self) -> float | None:
        """Seconds until more of the answer must come."""
        return self.step_seconds

    def restart(self) -> None:
        """Nothing: every step has a time of its own."""

    def over(self) -> UpstreamTimeout:
        """What to raise when nothing came in time."""
        return UpstreamTimeout(f"{MODEL_SERVER} sent nothing for {self.step_seconds} seconds.")


class Exchange:
    """One request and its answer, on whichever connection, within one limit."""

    __slots__ = ("_body", "_connection", "_head", "_limit", "_server", "_started")

    def __init__(self, server: str, head: bytes, body: bytes | Pieces, limit: Deadline | Patience) -> None:
        self._server = server
        self._head = head
        self._body = body
        self._limit = limit

    @property
    def streams(self) -> bool:
        """Whether the body is sent in pieces."""
        return not isinstance(self._body, bytes)

    def run(self, connection: socket.socket) -> HttpResponse:
        """Send and read; raises ConnectionError if the connection ends before an answer begins."""
        return self._run(connection, read_response)

    def begin(self, connection: socket.socket) -> ComingAnswer:
        """The same for an answer that is read as it comes, and ends the connection."""
        answer = self._run(connection, read_coming)
        return replace(answer, parts=self._parts(answer), close=partial(_end, connection))

    def _parts(self, answer: ComingAnswer) -> Iterator[bytes]:
        try:
            yield from answer.parts
        except BrokenAnswer as error:
            raise UpstreamUnavailable(connection_closed(self._server)) from error
        finally:
            _end(self._connection)

    def _run(self, connection: socket.socket, read: Callable[[Receive], Answer]) -> Answer:
        self._connection = connection
        self._started = False
        try:
            broken = self._send()
            try:
                return read(self._receive)
            except (ConnectionError, BrokenAnswer):
                if broken is not None and not self._started:
                    raise broken from None
                raise
        except BrokenAnswer as error:
            raise UpstreamUnavailable(f"{self._server}'s answer is not HTTP, or breaks off.") from error

    def _send(self) -> ConnectionError | None:
        """Send the request; a connection that breaks meanwhile may still hold an answer (413)."""
        seconds = self._limit.to_write()
        if not isinstance(self._body, bytes) or len(self._head) + len(self._body) > _AT_ONCE_BYTES:
            set_timeout(self._connection, seconds, SO_SNDTIMEO)
        try:
            self._send_all()
        except (TimeoutError, BlockingIOError) as error:
            raise UpstreamTimeout(
                f"{self._server} did not take the request within {seconds} seconds."
            ) from error
        except ConnectionError as error:
            return error
        except ssl.SSLError as error:
            return ConnectionResetError(str(error))
        return None

    def _send_all(self) -> None:
        send, body = self._connection.sendall, self._body
        if not isinstance(body, bytes):
            send(self._head)
            for piece in body():
                if piece:
                    send(b"%x\r\n%b\r\n" % (len(piece), piece))
            send(b"0\r\n\r\n")
            self._limit.restart()
        elif len(body) <= _SMALL_BYTES:
            send(self._head + body)
        else:
            send(self._head)
            send(body)

    def _receive(self) -> bytes:
        set_timeout(self._connection, self._limit.to_read(), SO_RCVTIMEO)
        try:
            part = self._connection.recv(_READ_BYTES)
        except (TimeoutError, BlockingIOError) as error:
            raise self._limit.over() from error
        except (ConnectionError, ssl.SSLError) as error:
            if self._started:
                raise BrokenAnswer("the connection broke") from error
            raise ConnectionResetError(str(error)) from error
        self._started = self._started or bool(part)
        return part


def _end(connection: socket.socket) -> None:
    """Close a connection from which another thread may be reading."""
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()


def set_timeout(connection: socket.socket, seconds: float | None, option: int) -> None:
    """Let what takes longer than ``seconds`` end, as BlockingIOError or TimeoutError; None is for ever.

    PERF: with a timeout of Python's own every step asks the kernel twice, and gives the interpreter's lock
    away twice, which costs more than the step if many threads want it. So the kernel keeps the time.
    """
    # OpenSSL takes the kernel's timeout for a call to try again, without end; gevent has its own sockets.
    if isinstance(connection, _socket.socket) and not isinstance(connection, ssl.SSLSocket):
        microseconds = 0 if seconds is None else max(1, int(seconds * 1e6))
        connection.setsockopt(socket.SOL_SOCKET, option, _TIMEVAL(*divmod(microseconds, 1_000_000)))
    else:
        connection.settimeout(seconds)


def framing(body: bytes | Pieces | None) -> str:
    """The header that says where the body ends."""
    if body is None:
        return ""
    if isinstance(body, bytes):
        return f"Content-Length: {len(body)}\r\n"
    return "Transfer-Encoding: chunked\r\n"
