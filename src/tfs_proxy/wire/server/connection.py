"""One client's connection to `wire.http_server`: a request at a time, within its limits and deadlines."""

import asyncio
import contextlib
import logging
import re
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Final, Protocol

import h11
from msgspec import Struct

from tfs_proxy.errors import Overloaded
from tfs_proxy.memory import MEGABYTE, RESERVED_FROM_BYTES
from tfs_proxy.wire.error_body import INTERNAL_ERROR, TOO_MANY_CONNECTIONS, body_too_large
from tfs_proxy.wire.http_messages import HttpRequest, HttpResponse, StreamedResponse
from tfs_proxy.wire.server import bounds
from tfs_proxy.wire.server.bounds import BodyMemory, OpenConnections
from tfs_proxy.wire.server.refusals import UNREAD, refusal, refuse_ambiguous, request_of, unavailable
from tfs_proxy.wire.server.sending import send_stream, taken

IDLE_SECONDS: Final = 75.0
DISCARD_BYTES: Final = 128 * 1024 * 1024
DISCARD_SECONDS: Final = 2.0
_READ_BYTES: Final = 65536
_COPIES: Final = 2
"""A body stands in memory as it arrives, and as the request's."""
_HEAD: Final = re.compile(rb".*?\n\r?\n", re.DOTALL)
_ODD_LINE: Final = re.compile(rb"(?<!\r)\n|\n[ \t]")
"""A line that ends without a carriage return, or is folded: h11 takes both, and other servers do not."""

Respond = Callable[[HttpRequest], Awaitable[HttpResponse]]
RespondOrStream = Callable[[HttpRequest], Awaitable[HttpResponse | StreamedResponse]]
"""The same for a server some of whose answers are streams."""

Refused = Callable[[HttpRequest, HttpResponse], HttpResponse]
"""Sees a request that the server refuses by itself, and its answer, to which it may add."""

log = logging.getLogger(__name__)


class RequestLimits(Struct, frozen=True):
    """What a client may send, and how long it may be silent in the middle of a request.

    ``body_bytes`` of None is for a server that needs no bodies: it discards them. Headers of the names in
    ``only_once``, in lower case, may not be repeated. ``memory`` bounds all bodies together.
    """

    body_bytes: int | None = None
    silence_seconds: float = 10.0
    only_once: frozenset[str] = frozenset()
    memory: BodyMemory | None = None


class ServerState(Protocol):
    """What a connection asks of its server."""

    respond: RespondOrStream
    refused: Refused
    limits: RequestLimits
    draining: bool
    open_connections: OpenConnections


class _OverLimit(Exception):
    """The body is over the limit."""


class ServerConnection:
    """A request at a time; ``is_owed`` says that a whole one waits for its answer."""

    def __init__(
        self,
        server: ServerState,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        task: asyncio.Task[None],
    ) -> None:
        self._server = server
        self._task = task
        self._limits = server.limits
        self._reader = reader
        self._writer = writer
        self._protocol = h11.Connection(h11.SERVER)
        self._reserved_bytes = 0
        self.busy = self.is_owed = False

    @property
    def is_idle(self) -> bool:
        """Whether no head of a request has come."""
        return not self.busy

    @property
    def has_unread(self) -> bool:
        """Whether the client has sent what was not looked at."""
        buffered = self._reader._buffer  # type: ignore[attr-defined]  # noqa: SLF001 (nothing else tells)
        return bool(buffered) or bounds.is_readable(self._writer.transport)

    def shed(self) -> None:
        """Close it for another one."""
        self._task.cancel()

    async def run(self) -> None:
        """Answer requests until the client, a deadline or a mistake ends it."""
        with contextlib.suppress(OSError, TimeoutError, h11.LocalProtocolError):
            if not self._server.open_connections.add(self):
                await self._send("GET", unavailable(TOO_MANY_CONNECTIONS))
                return
            try:
                while await self._serve_one():
                    self._protocol.start_next_cycle()
                    self.busy = self.is_owed = False
                    self._server.open_connections.use(self)
            finally:
                self._give_back()

    async def _serve_one(self) -> bool:
        """Read and answer one request; whether the connection can carry another."""
        begun = UNREAD
        response: HttpResponse | StreamedResponse
        try:
            head = await self._next_head()
            if not isinstance(head, h11.Request):
                return False
            self.busy = True
            begun = request_of(head)
            refuse_ambiguous(head, self._limits.only_once)
            request = await self._read(head)
            self.is_owed = True
            response = await self._server.respond(request)
            del request  # its body's memory is free while a slow client takes the answer
        except h11.RemoteProtocolError as error:
            response = refusal(error.error_status_hint)
        except _OverLimit:
            limit = f"{(self._limits.body_bytes or 0) // MEGABYTE} MB"
            response = HttpResponse.error(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE, body_too_large(limit), keeps_connection=False
            )
        except Overloaded as error:
            response = unavailable(str(error))
        except (OSError, TimeoutError):
            if self.busy and not self.is_owed:  # nobody takes the answer
                self._server.refused(begun, refusal(HTTPStatus.REQUEST_TIMEOUT))
            raise
        except Exception:
            log.exception("a request failed")
            response = HttpResponse.error(
                HTTPStatus.INTERNAL_SERVER_ERROR, INTERNAL_ERROR, keeps_connection=False
            )
        self._give_back()
        if isinstance(response, StreamedResponse):
            await send_stream(self._protocol, self._reader, self._writer, response)
            return self._may_go_on()
        if not self.is_owed:
            response = self._server.refused(begun, response)
        await self._send("GET" if begun is UNREAD else begun.method, response)
        return response.keeps_connection and self._may_go_on()

    def _may_go_on(self) -> bool:
        done = self._protocol.our_state is h11.DONE and self._protocol.their_state is h11.DONE
        return done and not self._server.draining

    async def _read(self, head: h11.Request) -> HttpRequest:
        limit = self._limits.body_bytes
        if limit is None:
            await self._read_away()
            return request_of(head)
        declared = dict(head.headers).get(b"content-length", b"0")
        return request_of(head, await self._read_body(limit, int(declared)))

    async def _read_body(self, limit: int, declared_bytes: int) -> bytes:
        if declared_bytes > limit:
            await self._discard()
            raise _OverLimit
        if self._protocol.they_are_waiting_for_100_continue:
            go_on = h11.InformationalResponse(status_code=HTTPStatus.CONTINUE, headers=[])
            self._writer.write(self._protocol.send(go_on) or b"")
        return await self._whole_body(limit)

    async def _whole_body(self, limit: int) -> bytes:
        body, began = bytearray(), _now()
        while isinstance(event := await self._next(self._body_deadline(began, len(body))), h11.Data):
            body += event.data
            if len(body) > limit:
                await self._discard()
                raise _OverLimit
            try:
                await self._reserve(len(body))
            except Overloaded:
                del body
                self._give_back()
                await self._discard()
                raise
        return bytes(body)

    def _body_deadline(self, began: float, size_bytes: int) -> float:
        now = _now()
        least = bounds.body_deadline(began, now, size_bytes)
        return min(least, now + self._limits.silence_seconds)

    async def _reserve(self, size_bytes: int) -> None:
        """Take memory for a body that has grown to ``size_bytes``, and a little more. Raises Overloaded."""
        memory = self._limits.memory
        if memory is None or size_bytes < RESERVED_FROM_BYTES or _COPIES * size_bytes <= self._reserved_bytes:
            return
        missing = _COPIES * (size_bytes + RESERVED_FROM_BYTES) - self._reserved_bytes
        await memory.take(missing)
        self._reserved_bytes += missing

    def _give_back(self) -> None:
        """Give back the memory of the body; idempotent."""
        if self._limits.memory is not None:
            self._limits.memory.give_back(self._reserved_bytes)
        self._reserved_bytes = 0

    async def _discard(self) -> None:
        """Read on for a moment: a client that still writes would not see the answer."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(DISCARD_SECONDS):
                await self._read_away()

    async def _read_away(self) -> None:
        """Discard the body up to its end, but no more than a limit; one that waits to be sent is not read."""
        discarded = 0
        while not self._protocol.they_are_waiting_for_100_continue and discarded < DISCARD_BYTES:
            event = await self._next(_now() + self._limits.silence_seconds)
            if not isinstance(event, h11.Data):
                return
            discarded += len(event.data)

    async def _next_head(self) -> object:
        """The head of a request, or the end: it may be long in coming, but not in being sent."""
        began = None
        while (event := self._next_event()) is h11.NEED_DATA:
            if began is None and self._protocol.trailing_data[0]:
                began = _now()
            await self._receive(_now() + IDLE_SECONDS if began is None else began + bounds.HEAD_SECONDS)
        return event

    async def _next(self, deadline: float) -> object:
        """The client's next event; raises TimeoutError if nothing comes by ``deadline``."""
        while (event := self._next_event()) is h11.NEED_DATA:
            await self._receive(deadline)
        return event

    async def _receive(self, deadline: float) -> None:
        async with asyncio.timeout_at(deadline):
            received = await self._reader.read(_READ_BYTES)
        self._protocol.receive_data(received)

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
        await taken(self._writer)


def _now() -> float:
    return asyncio.get_running_loop().time()
