"""Serves the methods of `services` by our own gRPC server, which has no TLS and no channel arguments."""

import socket
import stat
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Executor
from contextlib import suppress
from pathlib import Path

from tfs_proxy.embedded.core.process_ledger import ProcessLedger, RequestLedger
from tfs_proxy.embedded.grpc.refusals import status_of
from tfs_proxy.embedded.grpc.services import Handlers, Streams
from tfs_proxy.errors import SettingsError
from tfs_proxy.wire.grpc_server.calls import Method
from tfs_proxy.wire.grpc_server.running import Calls
from tfs_proxy.wire.grpc_server.server import BACKLOG, GrpcServer
from tfs_proxy.wire.protobuf_writer import Piece

AtOnce = Callable[[Piece], bytes | None]
"""Answers a message that takes next to no time on the event loop's thread; None for any other."""


class PlainServer:
    """Listens at once, and serves once the event loop runs."""

    def __init__(
        self,
        handlers: Handlers,
        streams: Streams,
        at_once: Mapping[str, AtOnce],
        threads: Executor,
        ledger: ProcessLedger,
    ) -> None:
        self._calls = Calls(
            methods=_methods(handlers, streams, at_once),
            threads=threads,
            refuse=status_of,
            reserve=lambda: RequestLedger(ledger),
        )
        self._listeners: list[socket.socket] = []
        self._server: GrpcServer | None = None

    def listen(self, addresses: Iterable[str]) -> None:
        """Listen on these addresses, as gRPC writes them. Raises SettingsError if one can't be bound."""
        for address in addresses:
            try:
                self._listeners.append(_listener(address))
            except OSError as error:
                raise SettingsError(f"Can't listen for gRPC on {address}: {error}") from error

    async def open(self) -> None:
        """Serve from now on, on this loop."""
        self._server = GrpcServer(self._calls)
        for listener in self._listeners:
            await self._server.open(listener)

    async def drain(self) -> None:
        """Accept no more calls, and wait for those that have begun, as long as they take."""
        if self._server is not None:
            self._server.drain()
            await self._server.drained()

    async def cut_off(self) -> None:
        """End all calls at once."""
        if self._server is not None:
            self._server.cut_off()

    def close(self) -> None:
        """Listen no longer; what the loop has not closed goes with it."""
        for listener in self._listeners:
            listener.close()


def _methods(handlers: Handlers, streams: Streams, at_once: Mapping[str, AtOnce]) -> dict[str, Method]:
    methods = {
        f"/{service}/{name}": Method(name, run=run, at_once=at_once.get(f"/{service}/{name}"))
        for service, table in handlers.items()
        for name, run in table.items()
    }
    for service, watched in streams.items():
        methods |= {f"/{service}/{name}": Method(name, stream=stream) for name, stream in watched.items()}
    return methods


def _listener(address: str) -> socket.socket:
    """Raises OSError."""
    if address.startswith("unix:"):
        return _unix_listener(address.removeprefix("unix:"))
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, int(port)), family=family, backlog=BACKLOG)


def _unix_listener(path: str) -> socket.socket:
    with suppress(FileNotFoundError):
        if stat.S_ISSOCK(Path(path).stat().st_mode):
            Path(path).unlink()  # a server that has ended left it behind
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(path)
        listener.listen(BACKLOG)
    except OSError:
        listener.close()
        raise
    return listener
