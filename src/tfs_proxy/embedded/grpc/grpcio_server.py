"""Serves the methods of `services` by grpcio, whose options are the bounds of connections and calls."""

import asyncio
import re
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from typing import Any, Final, NoReturn
from urllib.parse import quote, unquote

import grpc

from tfs_proxy.embedded.grpc.refusals import refusal_of
from tfs_proxy.embedded.grpc.services import Handler, Handlers
from tfs_proxy.errors import SettingsError
from tfs_proxy.memory import DEFAULT_BODY_BYTES
from tfs_proxy.wire.server.grpc_serving import keep_metadata_out_of_the_log, server_options, unpacked

MOST_CALLS: Final = 1024
"""At a time: those that run, those that wait for a thread, and those whose message still arrives."""

_IDLE_MILLISECONDS = 5 * 60 * 1000
_MAX_MESSAGE = 2**31 - 1
_MOST_TEXT_BYTES = 7000
"""Of a text as it is sent: clients fail on trailers of more than 8 KB without a word of them."""
_PRINTED = " !\"#$&'()*+,-./:;<=>?@[\\]^_`{|}~"
"""What is sent as it is, beside letters and digits: all of ASCII's but the per cent."""
_STATUS_CODES = {code.value[0]: code for code in grpc.StatusCode}


class GrpcioServer:
    """A running `grpc.Server`; any message size is taken."""

    def __init__(
        self,
        handlers: Handlers,
        others: Iterable[Callable[[Any], None]],
        addresses: Iterable[str],
        threads: Executor,
        options: Iterable[tuple[str, int | str]],
        credentials: Any,
    ) -> None:
        """Listen on these addresses; ``others`` add services to the server.

        Raises SettingsError if an address can't be bound.
        """
        keep_metadata_out_of_the_log()
        self._server = grpc.server(
            threads,
            options=[
                *server_options(_MAX_MESSAGE),
                ("grpc.so_reuseport", 0),
                ("grpc.max_concurrent_streams", MOST_CALLS),
                ("grpc.max_connection_idle_ms", _IDLE_MILLISECONDS),
                *options,
            ],
            maximum_concurrent_rpcs=MOST_CALLS,
        )
        for service, methods in handlers.items():
            table = {
                name: grpc.unary_unary_rpc_method_handler(_guarded(name, run))
                for name, run in methods.items()
            }
            self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, table),))
        for add in others:
            add(self._server)
        for address in addresses:
            _bind(self._server, address, credentials)
        self._server.start()

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
            return run(unpacked(message, DEFAULT_BODY_BYTES), context)
        except Exception as error:  # noqa: BLE001 (_refuse raises)
            _refuse(name, error, context)

    return handle


def _refuse(name: str, error: Exception, context: Any) -> NoReturn:
    """End a call with the status of its error; always raises."""
    code, text = refusal_of(name, error)
    context.abort(_STATUS_CODES[int(code)], _cut(text))
    raise AssertionError(name) from error


def _cut(text: str) -> str:
    """The beginning of a text, as far as it can be sent."""
    sent = quote(text.encode(errors="replace"), safe=_PRINTED)[:_MOST_TEXT_BYTES]
    return unquote(re.sub("%.?$", "", sent), errors="ignore")
