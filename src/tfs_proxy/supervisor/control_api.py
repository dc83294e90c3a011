"""The control API: the supervisor's own HTTP, which answers however busy the workers are.

Two faces. Behind the unix socket: ``/ping`` for nginx and workers, ``/deployment``, ``/released``
and ``/settled`` for workers. On the socket that workers will accept from: 503 with the reason, until
they take over.
"""

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from tfs_proxy.deployment import Deployment
from tfs_proxy.supervisor.readiness import Readiness
from tfs_proxy.wire.http_server import Answer, Reply, serve_connection

log = logging.getLogger(__name__)

OK, NOT_FOUND, NOT_ALLOWED, UNAVAILABLE = 200, 404, 405, 503


class ControlApi:
    """Answers from `Readiness`; ``deployment`` is handed out once it is known."""

    def __init__(self, readiness: Readiness) -> None:
        self.readiness = readiness
        self.deployment: Deployment | None = None
        self.released = False
        self._servers: list[asyncio.Server] = []
        self._standing_in: list[asyncio.Server] = []

    async def open(self, path: Path) -> None:
        """Listen on the unix socket."""
        self._servers.append(await asyncio.start_unix_server(_connections(self.answer), path=path))

    async def stand_in(self, listeners: Sequence[socket.socket]) -> None:
        """Answer 503 on ``listeners`` until `release`; the sockets themselves stay open."""
        for each in listeners:
            server = await asyncio.start_server(_connections(self.answer_early), sock=each.dup())
            self._standing_in.append(server)

    def release(self) -> None:
        """Leave the listeners to the workers, and tell them that they may accept."""
        self._stand_aside()
        self.released = True

    def close(self) -> None:
        """Stop listening; idempotent."""
        self._stand_aside()
        for server in self._servers:
            server.close()
        self._servers.clear()

    def _stand_aside(self) -> None:
        for server in self._standing_in:
            server.close()
        self._standing_in.clear()

    async def answer(self, method: str, path: str) -> Reply:
        """Requests on the unix socket."""
        if method not in {"GET", "HEAD"}:
            return Reply.error(NOT_ALLOWED, "this method is not allowed here, but GET", allow="GET, HEAD")
        match path:
            case "/ping":
                return _ok_without(self.readiness.reason())
            case "/settled":
                return _ok_without(self.readiness.away())
            case "/deployment" if self.deployment is not None:
                return Reply(OK, self.deployment.to_json())
            case "/deployment" | "/released":
                return _ok_without(None if self.released else self.readiness.step)
            case _:
                return Reply.error(NOT_FOUND, f"there is nothing at {path}")

    async def answer_early(self, method: str, path: str) -> Reply:
        """Requests of clients before the workers take over: the reason, and no connection is kept."""
        del method, path
        return Reply.error(UNAVAILABLE, self.readiness.reason() or "starting", close=True)


def _ok_without(reason: str | None) -> Reply:
    return Reply(OK) if reason is None else Reply.error(UNAVAILABLE, reason)


def _connections(answer: Answer) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await serve_connection(answer, reader, writer)

    return serve
