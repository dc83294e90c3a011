"""Serves the methods of `services` by grpcio: TLS and channel arguments, which `plain_server` lacks."""

import asyncio
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from typing import Any, NoReturn

import grpc

from tfs_proxy.embedded.grpc.refusals import status_of
from tfs_proxy.embedded.grpc.services import Handler, Handlers, Send, Stream, Streams
from tfs_proxy.errors import SettingsError
from tfs_proxy.wire.grpc_server.statuses import Status

_MAX_MESSAGE = 2**31 - 1
_STATUS_CODES = {code.value[0]: code for code in grpc.StatusCode}


class GrpcioServer:
    """A running `grpc.Server`; any message size is taken."""

    def __init__(
        self,
        handlers: Handlers,
        streams: Streams,
        addresses: Iterable[str],
        threads: Executor,
        options: Iterable[tuple[str, int | str]],
        credentials: Any,
    ) -> None:
        """Listen on these addresses. Raises SettingsError if one can't be bound."""
        sizes = [(f"grpc.max_{way}_message_length", _MAX_MESSAGE) for way in ("send", "receive")]
        self._server = grpc.server(threads, options=[*sizes, ("grpc.so_reuseport", 0), *options])
        for service, methods in handlers.items():
            table = {
                name: grpc.unary_unary_rpc_method_handler(_guarded(name, run))
                for name, run in methods.items()
            }
            for name, stream in streams.get(service, {}).items():
                table[name] = grpc.unary_stream_rpc_method_handler(_streamed(name, stream))
            self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, table),))
        for address in addresses:
            _bind(self._server, address, credentials)
        self._server.start()

    async def open(self) -> None:
        """Nothing: it serves already."""

    async def drain(self) -> None:
        """Accept no more calls, and wait for those that have begun, as long as they take."""
        stopped = self._server.stop(threading.TIMEOUT_MAX)
        await asyncio.to_thread(stopped.wait)

    async def cut_off(self) -> None:
        """End all calls at once."""
        await asyncio.to_thread(self._server.stop, None)

    def close(self) -> None:
        """Stop at once, if it has not already."""
        self._server.stop(0)


def _bind(server: Any, address: str, credentials: Any) -> None:
    try:
        if credentials is None:
            port = server.add_insecure_port(address)
        else:
            port = server.add_secure_port(address, credentials)
    except RuntimeError as error:
        raise SettingsError(f"Can't listen for gRPC on {address}: {error}") from error
    if not port:
        raise SettingsError(f"Can't listen for gRPC on {address}.")


def _guarded(name: str, run: Handler) -> Callable[[bytes, Any], bytes]:
    def handle(message: bytes, context: Any) -> bytes:
        try:
            return run(message, context)
        except Exception as error:  # noqa: BLE001 (_refuse raises)
            _refuse(name, error, context)

    return handle


class _StreamContext:
    """What a stream asks of its call."""

    def __init__(self, context: Any) -> None:
        self._context = context
        self.peer = context.peer
        self.is_active = context.is_active
        self.add_callback = context.add_callback

    def set_status(self, status: Status) -> None:
        """What the stream ends with."""
        self._context.set_code(_STATUS_CODES[int(status.code)])
        self._context.set_details(status.text)


def _streamed(name: str, run: Stream) -> Callable[[bytes, Any, Send], None]:
    def handle(message: bytes, context: Any, send: Send) -> None:
        try:
            run(message, _StreamContext(context), send)
        except Exception as error:  # noqa: BLE001 (_refuse raises)
            _refuse(name, error, context)

    handle.experimental_non_blocking = True  # type: ignore[attr-defined]
    return handle


def _refuse(name: str, error: Exception, context: Any) -> NoReturn:
    """End a call with the status of its error; always raises."""
    status = status_of(name, error)
    context.abort(_STATUS_CODES[int(status.code)], status.text)
    raise AssertionError(name) from error
