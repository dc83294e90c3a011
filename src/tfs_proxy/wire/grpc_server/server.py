"""Listens for gRPC without TLS, and drains: the top of `grpc_server`."""

import asyncio
import socket

from tfs_proxy.resources import most_descriptors
from tfs_proxy.wire.grpc_server.connection import GrpcServerConnection
from tfs_proxy.wire.grpc_server.frame_protocol import SCRATCH_BYTES
from tfs_proxy.wire.grpc_server.running import Calls
from tfs_proxy.wire.server.bounds import OpenConnections

BACKLOG = 1024
_SHARE = 4
"""A quarter of the descriptors: beside it there is a server of REST, and the calls themselves."""


class GrpcServer:
    """Answers calls on any number of listeners, all on one event loop."""

    def __init__(self, calls: Calls) -> None:
        self.calls = calls
        self.open_connections = OpenConnections(max(1, most_descriptors() // _SHARE))
        self.scratch = memoryview(bytearray(SCRATCH_BYTES))
        self._servers: list[asyncio.AbstractServer] = []
        self._connections: set[GrpcServerConnection] = set()
        self._is_draining = False
        self._is_empty = asyncio.Event()
        self._is_empty.set()

    async def open(self, listener: socket.socket) -> None:
        """Accept on a listening socket from now on."""
        loop = asyncio.get_running_loop()
        if listener.family == socket.AF_UNIX:
            server = await loop.create_unix_server(self._connection, sock=listener, backlog=BACKLOG)
        else:
            server = await loop.create_server(self._connection, sock=listener, backlog=BACKLOG)
        self._servers.append(server)

    def drain(self) -> None:
        """Accept no more connections and calls; what has begun goes on. Idempotent."""
        self._is_draining = True
        for server in self._servers:
            server.close()
        for connection in list(self._connections):
            connection.drain()

    async def drained(self) -> None:
        """Wait until every call is answered, and every connection closed."""
        await self._is_empty.wait()

    def cut_off(self) -> None:
        """Close all connections at once."""
        for connection in list(self._connections):
            connection.shed()

    def on_opened(self, connection: GrpcServerConnection) -> None:
        """Know one more connection."""
        self._connections.add(connection)
        self._is_empty.clear()
        if self._is_draining:
            connection.drain()

    def on_closed(self, connection: GrpcServerConnection) -> None:
        """Forget it."""
        self._connections.discard(connection)
        if not self._connections:
            self._is_empty.set()

    def _connection(self) -> GrpcServerConnection:
        return GrpcServerConnection(self)
