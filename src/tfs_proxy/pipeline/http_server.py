"""The pipeline's own HTTP server: whole requests in, whole answers out, connections kept alive."""

import asyncio
import contextlib
import logging
import socket
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

import h11

from tfs_proxy.wire.http_server import DISCARD_BYTES, IDLE_SECONDS, Reply, next_event, refusal, send

BODY_SECONDS = 60.0
"""How long a client may be silent in the middle of a request."""

DISCARD_SECONDS = 2.0
TOO_LARGE, INTERNAL = 413, 500
INTERNAL_ERROR = "internal error: what happened is in the log"

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Asked:
    """One request; header names are in lower case."""

    method: str
    path: str
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""


Respond = Callable[[Asked], Awaitable[Reply]]


class _TooLarge(Exception):
    """The body is over the limit."""


class Front:
    """Serves ``respond`` on a listener; bodies over ``limit_bytes`` are refused."""

    def __init__(self, respond: Respond, limit_bytes: int) -> None:
        self.respond = respond
        self.limit_bytes = limit_bytes
        self.draining = False
        self._server: asyncio.Server | None = None
        self._connections: dict[asyncio.Task[None], _Connection] = {}

    async def open(self, listener: socket.socket) -> None:
        """Accept from now on; small packets go out at once."""
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._server = await asyncio.start_server(self._serve, sock=listener)

    async def drain(self, seconds: float) -> None:
        """Accept no more, and wait until what is in flight is answered, but not longer."""
        self.draining = True
        if self._server is not None:
            self._server.close()
        for task, connection in self._connections.items():
            if not connection.busy:
                task.cancel()
        if self._connections:
            await asyncio.wait(self._connections, timeout=max(seconds, 0))
        for task in self._connections:
            task.cancel()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is None:
            return
        connection = self._connections[task] = _Connection(self, reader, writer)
        try:
            await connection.run()
        except asyncio.CancelledError:
            pass  # told by `drain`; raising it would be logged as an error of the server's
        finally:
            del self._connections[task]
            writer.close()


class _Connection:
    """One client's connection: a request at a time."""

    def __init__(self, front: Front, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._front = front
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
            head = await next_event(self._protocol, self._reader, IDLE_SECONDS)
            if not isinstance(head, h11.Request):
                return False
            self.busy = True
            method = head.method.decode("ascii")
            reply = await self._front.respond(await self._read(head))
        except h11.RemoteProtocolError as error:
            reply = refusal(error.error_status_hint)
        except _TooLarge:
            reply = Reply.error(TOO_LARGE, self._too_large, close=True)
        except (OSError, TimeoutError):
            raise
        except Exception:
            log.exception("a request failed in the pipeline's front")
            reply = Reply.error(INTERNAL, INTERNAL_ERROR, close=True)
        await send(self._protocol, self._writer, method, reply)
        done = self._protocol.our_state is h11.DONE and self._protocol.their_state is h11.DONE
        return done and not reply.close and not self._front.draining

    @property
    def _too_large(self) -> str:
        limit_mb = self._front.limit_bytes // (1024 * 1024)
        return f"the body is larger than {limit_mb} MB, the limit that SAGEMAKER_MAX_PAYLOAD_IN_MB sets"

    async def _read(self, head: h11.Request) -> Asked:
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in head.headers}
        path = head.target.decode("ascii", "replace").partition("?")[0]
        if int(headers.get("content-length", "0")) > self._front.limit_bytes:
            await self._discard()
            raise _TooLarge
        if self._protocol.they_are_waiting_for_100_continue:
            self._writer.write(
                self._protocol.send(h11.InformationalResponse(status_code=100, headers=[])) or b""
            )
        body = bytearray()
        while isinstance(event := await self._next(), h11.Data):
            body += event.data
            if len(body) > self._front.limit_bytes:
                await self._discard()
                raise _TooLarge
        return Asked(head.method.decode("ascii"), path, headers, bytes(body))

    async def _discard(self) -> None:
        """Read on for a moment: a client that still writes would not see the answer."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(DISCARD_SECONDS):
                await self._read_away()

    async def _read_away(self) -> None:
        discarded = 0
        while not self._protocol.they_are_waiting_for_100_continue and discarded < DISCARD_BYTES:
            event = await self._next()
            if not isinstance(event, h11.Data):
                return
            discarded += len(event.data)

    async def _next(self) -> object:
        return await next_event(self._protocol, self._reader, BODY_SECONDS)
