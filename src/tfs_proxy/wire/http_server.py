"""A small HTTP/1.1 server on asyncio: the control API and the front of a pipeline are two of it.

h11 knows the protocol; this module moves bytes, keeps limits and deadlines, and drains.
"""

import asyncio
import contextlib
import logging
import re
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Final

import h11

from tfs_proxy.wire.error_body import INTERNAL_ERROR, body_too_large
from tfs_proxy.wire.http_messages import HttpRequest, HttpResponse

BACKLOG: Final = 2048
"""Connections that wait to be accepted, per listener; the kernel may allow fewer (net.core.somaxconn)."""
IDLE_SECONDS: Final = 75.0
DISCARD_BYTES: Final = 8 * 1024 * 1024
DISCARD_SECONDS: Final = 2.0
_READ_BYTES: Final = 65536
_MEGABYTE: Final = 1024 * 1024
_HEAD: Final = re.compile(rb".*?\n\r?\n", re.DOTALL)
_ODD_LINE: Final = re.compile(rb"(?<!\r)\n|\n[ \t]")
"""A line that ends without a carriage return, or is folded: h11 takes both, and other servers do not."""
_BODY_LENGTHS: Final = frozenset({b"content-length", b"transfer-encoding"})

Respond = Callable[[HttpRequest], Awaitable[HttpResponse]]

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """What a client may send, and how long it may be silent in the middle of a request.

    ``body_bytes`` of None is for a server that needs no bodies: it discards them. Headers of the names in
    ``only_once``, in lower case, may not be repeated.
    """

    body_bytes: int | None = None
    silence_seconds: float = 10.0
    only_once: frozenset[str] = frozenset()


class HttpServer:
    """Answers requests with ``respond``, on any number of listeners; connections are kept alive."""

    def __init__(self, respond: Respond, limits: RequestLimits = RequestLimits()) -> None:
        self.respond = respond
        self.limits = limits
        self.draining = False
        self._servers: list[asyncio.Server] = []
        self._connections: dict[asyncio.Task[None], _ServerConnection] = {}

    async def open(self, listener: socket.socket) -> None:
        """Accept on a listening socket from now on; small packets go out at once."""
        if listener.family != socket.AF_UNIX:
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._servers.append(
            await asyncio.start_server(self.serve_connection, sock=listener, backlog=BACKLOG)
        )

    async def open_unix(self, path: Path) -> None:
        """Accept on a unix socket that is made at ``path``."""
        self._servers.append(
            await asyncio.start_unix_server(self.serve_connection, path=path, backlog=BACKLOG)
        )

    def close(self) -> None:
        """Accept no more; what is in flight goes on. Idempotent."""
        for server in self._servers:
            server.close()
        self._servers.clear()

    async def drain(self, seconds: float) -> None:
        """Accept no more, and wait until what is in flight is answered, but not longer."""
        self.draining = True
        self.close()
        for task, connection in self._connections.items():
            if not connection.busy:
                task.cancel()
        if self._connections:
            await asyncio.wait(self._connections, timeout=max(seconds, 0))
        for task in self._connections:
            task.cancel()

    async def serve_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer every request of one connection, then close it."""
        task = asyncio.current_task()
        if task is None:
            return
        connection = self._connections[task] = _ServerConnection(self, reader, writer)
        try:
            await connection.run()
        except asyncio.CancelledError:
            pass  # cancelled by `drain`; asyncio would log it as an error of the server
        finally:
            del self._connections[task]
            writer.close()


class _TooLarge(Exception):
    """The body is over the limit."""


class _ServerConnection:
    """One client's connection: a request at a time."""

    def __init__(
        self, server: HttpServer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._server = server
        self._limits = server.limits
        self._reader = reader
        self._writer = writer
        self._protocol = h11.Connection(h11.SERVER)
        self.busy = False

    async def run(self) -> None:
        with contextlib.suppress(OSError, TimeoutError, h11.LocalProtocolError):
            while await self._serve_one():
                self._protocol.start_next_cycle()
                self.busy = False

    async def _serve_one(self) -> bool:
        """Read and answer one request; whether the connection can carry another."""
        method = "GET"
        try:
            head = await self._next(IDLE_SECONDS)
            if not isinstance(head, h11.Request):
                return False
            self.busy = True
            _refuse_ambiguous(head, self._limits.only_once)
            method = head.method.decode("ascii")
            response = await self._server.respond(await self._read(head))
        except h11.RemoteProtocolError as error:
            response = _refusal(error.error_status_hint)
        except _TooLarge:
            limit = f"{(self._limits.body_bytes or 0) // _MEGABYTE} MB"
            response = HttpResponse.error(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE, body_too_large(limit), keeps_connection=False
            )
        except (OSError, TimeoutError):
            raise
        except Exception:
            log.exception("a request failed")
            response = HttpResponse.error(
                HTTPStatus.INTERNAL_SERVER_ERROR, INTERNAL_ERROR, keeps_connection=False
            )
        await self._send(method, response)
        done = self._protocol.our_state is h11.DONE and self._protocol.their_state is h11.DONE
        return done and response.keeps_connection and not self._server.draining

    async def _read(self, head: h11.Request) -> HttpRequest:
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in head.headers}
        path = head.target.decode("ascii", "replace").partition("?")[0]
        limit = self._limits.body_bytes
        if limit is None:
            await self._read_away()
            body = b""
        else:
            body = await self._read_body(limit, int(headers.get("content-length", "0")))
        return HttpRequest(head.method.decode("ascii"), path, headers, body)

    async def _read_body(self, limit: int, declared_bytes: int) -> bytes:
        if declared_bytes > limit:
            await self._discard()
            raise _TooLarge
        if self._protocol.they_are_waiting_for_100_continue:
            go_on = h11.InformationalResponse(status_code=HTTPStatus.CONTINUE, headers=[])
            self._writer.write(self._protocol.send(go_on) or b"")
        body = bytearray()
        while isinstance(event := await self._next(self._limits.silence_seconds), h11.Data):
            body += event.data
            if len(body) > limit:
                await self._discard()
                raise _TooLarge
        return bytes(body)

    async def _discard(self) -> None:
        """Read on for a moment: a client that still writes would not see the answer."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(DISCARD_SECONDS):
                await self._read_away()

    async def _read_away(self) -> None:
        """Discard the body up to its end, but no more than a limit; one that waits to be sent is not read."""
        discarded = 0
        while not self._protocol.they_are_waiting_for_100_continue and discarded < DISCARD_BYTES:
            event = await self._next(self._limits.silence_seconds)
            if not isinstance(event, h11.Data):
                return
            discarded += len(event.data)

    async def _next(self, silence_seconds: float) -> object:
        """The client's next event; raises TimeoutError if the client is silent for so long."""
        while (event := self._next_event()) is h11.NEED_DATA:
            async with asyncio.timeout(silence_seconds):
                received = await self._reader.read(_READ_BYTES)
            self._protocol.receive_data(received)
        return event

    def _next_event(self) -> object:
        if self._protocol.their_state is h11.IDLE:
            head = _HEAD.match(self._protocol.trailing_data[0])
            if head and _ODD_LINE.search(head[0]):
                raise h11.RemoteProtocolError("a line of the head is folded, or ends without CR")
        return self._protocol.next_event()

    async def _send(self, method: str, response: HttpResponse) -> None:
        """Write one whole answer to a request of ``method``."""
        headers = {"Content-Length": str(len(response.body)), **response.headers}
        if response.body and response.header("Content-Type") is None:
            headers["Content-Type"] = "application/json"
        if not response.keeps_connection or self._protocol.their_state is not h11.DONE:
            headers["Connection"] = "close"
        reason = HTTPStatus(response.status).phrase.encode()
        head = h11.Response(status_code=response.status, headers=list(headers.items()), reason=reason)
        parts = [self._protocol.send(head)]
        if method != "HEAD":
            parts.append(self._protocol.send(h11.Data(data=response.body)))
        parts.append(self._protocol.send(h11.EndOfMessage()))
        # PERF: in one piece; the kernel would hold a second one back until the client has acknowledged
        # the first.
        self._writer.write(b"".join(part for part in parts if part))
        await self._writer.drain()


def _refuse_ambiguous(head: h11.Request, only_once: frozenset[str]) -> None:
    """Raise RemoteProtocolError for two lengths of the body, and for a repeated header of ``only_once``."""
    names = [name for name, _ in head.headers]
    if set(names) >= _BODY_LENGTHS:
        raise h11.RemoteProtocolError("Content-Length and Transfer-Encoding together")
    if any(names.count(name.encode()) > 1 for name in only_once):
        raise h11.RemoteProtocolError("a header that may stand once is repeated")


def _refusal(status: int) -> HttpResponse:
    """What h11 refuses, without a word of the client's text."""
    phrase = HTTPStatus(status).phrase.lower()
    return HttpResponse.error(status, f"refused: {phrase}", keeps_connection=False)
