"""Pooled keep-alive HTTP/1.1 connections to one address: what `rest` sends its requests over."""

import http.client
import select
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass

from tfs_proxy.errors import UpstreamTimeout, UpstreamUnavailable
from tfs_proxy.upstream.roster import NotReached

CONNECT_SECONDS = 5.0
_READ_BYTES = 1 << 20

Connect = Callable[[str, int, float], http.client.HTTPConnection]
"""Makes a connection, not yet open, of host, port and timeout in seconds."""


@dataclass(frozen=True, slots=True)
class Reply:
    """One HTTP answer, read to its end; header names as the server wrote them."""

    status: int
    headers: Mapping[str, str]
    body: bytes


def connect_tcp(host: str, port: int, timeout_seconds: float) -> http.client.HTTPConnection:
    """A plain TCP connection."""
    return http.client.HTTPConnection(host, port, timeout=timeout_seconds)


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
        timeout_seconds: float,
        *,
        idle: int = 64,
        connect: Connect = connect_tcp,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._host = host
        self._port = port
        self._timeout_seconds = timeout_seconds
        self._idle: deque[http.client.HTTPConnection] = deque()
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
        """Send one request and read its answer.

        Raises NotReached where no connection opens, UpstreamUnavailable where one breaks, and
        UpstreamTimeout where the answer is not complete in time.
        """
        deadline = self._clock() + (self._timeout_seconds if timeout_seconds is None else timeout_seconds)
        connection = self._take()
        if connection is not None:
            with suppress(http.client.RemoteDisconnected, ConnectionError):
                return self._exchange(connection, deadline, method, path, body, headers)
        return self._request_anew(deadline, method, path, body, headers)

    def close(self) -> None:
        """Close what is idle; connections in use are closed when they come back."""
        self._closed = True
        while self._idle:
            self._idle.pop().close()

    def _request_anew(
        self, deadline: float, method: str, path: str, body: bytes | None, headers: Mapping[str, str]
    ) -> Reply:
        connection = self._open()
        try:
            return self._exchange(connection, deadline, method, path, body, headers)
        except (http.client.RemoteDisconnected, ConnectionError) as error:
            raise UpstreamUnavailable("The model server closed the connection without an answer.") from error

    def _open(self) -> http.client.HTTPConnection:
        connection = self._connect(self._host, self._port, min(CONNECT_SECONDS, self._timeout_seconds))
        try:
            connection.connect()
        except OSError as error:
            connection.close()
            raise NotReached("The model server can't be reached.") from error
        return connection

    def _take(self) -> http.client.HTTPConnection | None:
        """The idle connection used last that the server has not closed meanwhile."""
        while True:
            try:
                connection = self._idle.pop()
            except IndexError:
                return None
            if not _is_readable(connection):
                return connection
            connection.close()

    def _give_back(self, connection: http.client.HTTPConnection) -> None:
        if self._closed or len(self._idle) >= self._most_idle:
            connection.close()
        else:
            self._idle.append(connection)

    def _exchange(
        self,
        connection: http.client.HTTPConnection,
        deadline: float,
        method: str,
        path: str,
        body: bytes | None,
        headers: Mapping[str, str],
    ) -> Reply:
        """One request on an open connection; ConnectionError means that no answer had begun."""
        kept = False
        try:
            self._limit(connection, deadline)
            connection.request(method, path, body, dict(headers))
            response = connection.getresponse()
            content = self._read(connection, response, deadline)
            kept = not response.will_close
            return Reply(response.status, dict(response.getheaders()), content)
        except TimeoutError as error:
            raise self._too_late() from error
        except http.client.RemoteDisconnected:
            raise
        except http.client.HTTPException as error:
            raise UpstreamUnavailable("The model server's answer is no HTTP, or breaks off.") from error
        finally:
            if kept:
                self._give_back(connection)
            else:
                connection.close()

    def _read(
        self, connection: http.client.HTTPConnection, response: http.client.HTTPResponse, deadline: float
    ) -> bytes:
        # PERF: one read does for most answers; read1 gives what is there, so no drip renews the time.
        parts = []
        try:
            while response.length != 0:
                self._limit(connection, deadline)
                part = response.read1(_READ_BYTES)
                if not part:
                    break
                parts.append(part)
        except ConnectionError as error:
            raise UpstreamUnavailable("The model server broke off its answer.") from error
        if response.length:
            raise UpstreamUnavailable("The model server broke off its answer.")
        response.close()
        return b"".join(parts)

    def _limit(self, connection: http.client.HTTPConnection, deadline: float) -> None:
        remaining_seconds = deadline - self._clock()
        if remaining_seconds <= 0:
            raise self._too_late()
        if connection.sock is not None:
            connection.sock.settimeout(remaining_seconds)

    def _too_late(self) -> UpstreamTimeout:
        return UpstreamTimeout(f"The model server did not answer within {self._timeout_seconds:g} seconds.")


def _is_readable(connection: http.client.HTTPConnection) -> bool:
    """Whether an idle connection has something to read: its end, or an answer nobody asked for."""
    if connection.sock is None:
        return True
    poll = select.poll()
    poll.register(connection.sock, select.POLLIN)
    return bool(poll.poll(0))
