"""A small HTTP/1.1 server on asyncio: the control API and the front of a pipeline are two of it.

h11 knows the protocol; `wire.server.connection` moves bytes, keeps limits and deadlines; this module
accepts, and drains.
"""

import asyncio
import socket
from pathlib import Path
from typing import Final

from tfs_proxy.wire.server.bounds import ACCEPTED_AT_ONCE, OpenConnections
from tfs_proxy.wire.server.connection import Refused, RequestLimits, RespondOrStream, ServerConnection
from tfs_proxy.wire.server.refusals import as_it_is

BACKLOG: Final = 2048
"""Connections that wait to be accepted, per listener; the kernel may allow fewer (net.core.somaxconn)."""


_NO_BODIES: Final = RequestLimits()


class PipelineServer:
    """Answers requests with ``respond``, on any number of listeners; connections are kept alive.

    ``refused`` sees those that it answers by itself.
    """

    def __init__(
        self, respond: RespondOrStream, limits: RequestLimits = _NO_BODIES, refused: Refused = as_it_is
    ) -> None:
        self.respond = respond
        self.refused = refused
        self.limits = limits
        self.draining = False
        self._servers: list[asyncio.Server] = []
        self._connections: dict[asyncio.Task[None], ServerConnection] = {}
        self.open_connections = OpenConnections()

    async def open(self, listener: socket.socket) -> None:
        """Accept on a listening socket from now on; small packets go out at once."""
        if listener.family != socket.AF_UNIX:
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # NOTE: asyncio takes one number for what it accepts at once and for the length of the queue.
        self._servers.append(
            await asyncio.start_server(self.serve_connection, sock=listener, backlog=ACCEPTED_AT_ONCE)
        )
        listener.listen(BACKLOG)

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
        connection = self._connections[task] = ServerConnection(self, reader, writer, task)
        try:
            await connection.run()
        except asyncio.CancelledError:
            pass  # cancelled by `drain`, or shed; asyncio would log it as an error of the server
        finally:
            self.open_connections.discard(connection)
            del self._connections[task]
            writer.close()
