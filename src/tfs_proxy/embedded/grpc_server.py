"""Serves `grpc_services` by grpcio, whose options are the bounds of connections and calls; and health."""

import asyncio
import logging
import re
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from typing import Any, Final, NoReturn
from urllib.parse import quote, unquote

import grpc
from google.protobuf.message import DecodeError
from grpc_health.v1 import health
from grpc_health.v1.health_pb2 import HealthCheckResponse

from tfs_proxy.embedded.core.catalog import Catalog
from tfs_proxy.embedded.errors import ServingError, of_memory
from tfs_proxy.embedded.grpc_services import MODEL_SERVICE, CallContext, Handler, Handlers
from tfs_proxy.embedded.model_config import read_text
from tfs_proxy.values.errors import Overloaded, PayloadTooLarge, RequestError, SettingsError
from tfs_proxy.values.memory import DEFAULT_BODY_BYTES
from tfs_proxy.wire.grpc_codes import GrpcCode
from tfs_proxy.wire.grpc_serving import keep_metadata_out_of_the_log, server_options, unpacked
from tfs_proxy.wire.protos import SSLConfig

log = logging.getLogger(__name__)


def refusal_of(name: str, error: Exception) -> tuple[GrpcCode, str]:
    """The code and the text for an error of the method of this name; what nobody expected is logged."""
    if isinstance(error, PayloadTooLarge | Overloaded):
        error = of_memory(error)
    if isinstance(error, ServingError):
        return error.code, error.text
    if isinstance(error, RequestError):
        return GrpcCode.INVALID_ARGUMENT, str(error)
    if isinstance(error, DecodeError):
        return GrpcCode.INVALID_ARGUMENT, f"The request is not a message of {name}"
    log.error("%s failed", name, exc_info=error)
    return GrpcCode.INTERNAL, "Internal error: see the model server's log"


_NUMBER = re.compile("[+-]?[0-9]{1,10}")
_INT32 = 2**31


def credentials(path: str) -> Any:
    """Server credentials of an SSL config file; None if no file is named.

    Raises SettingsError if it can't be read, holds no key and certificate, or is to verify clients
    without a CA for them.
    """
    if not path:
        return None
    config = read_text(path, SSLConfig())
    if not config.server_key or not config.server_cert:
        raise SettingsError(f"{path} needs server_key and server_cert, both as PEM.")
    if config.client_verify and not config.custom_ca:
        raise SettingsError(f"{path} needs custom_ca, as PEM, for client_verify.")
    return grpc.ssl_server_credentials(
        [(config.server_key.encode(), config.server_cert.encode())],
        config.custom_ca.encode() or None,
        config.client_verify,
    )


def channel_arguments(text: str) -> list[tuple[str, int | str]]:
    """``--grpc_channel_arguments``: ``key=value`` pairs between commas; numbers of 32 bits are numbers.

    Raises SettingsError for a pair without ``=``.
    """
    arguments: list[tuple[str, int | str]] = []
    for pair in filter(None, text.split(",")):
        key, equals, value = pair.partition("=")
        if not equals:
            raise SettingsError(f"--grpc_channel_arguments: {pair} is not key=value.")
        value = value.strip()
        number = int(value) if _NUMBER.fullmatch(value) else _INT32
        arguments.append((key.strip(), number if -_INT32 <= number < _INT32 else value))
    return arguments


RELOAD: Final = "HandleReloadConfigRequest"
"""The method that changes what is served."""


def on_socket_only(handlers: Handlers) -> Handlers:
    """``handlers``, which take a reload on the unix socket alone."""
    run = handlers[MODEL_SERVICE][RELOAD]

    def reload(message: bytes, context: CallContext) -> bytes:
        if not context.peer().startswith("unix:"):
            raise ServingError(
                GrpcCode.PERMISSION_DENIED, f"{RELOAD} is accepted only on the model server's unix socket."
            )
        return run(message, context)

    return {**handlers, MODEL_SERVICE: {**handlers[MODEL_SERVICE], RELOAD: reload}}


SERVICE: Final = "grpc.health.v1.Health"

_NAMES = (
    "",
    "ModelService",
    "PredictionService",
    "tensorflow.serving.ModelService",
    "tensorflow.serving.PredictionService",
)
"""Names that have a health: the server as a whole, and its services under the names that clients use."""


class Health(health.HealthServicer):  # type: ignore[misc]  # the package has no types
    """Health of the server, which is not serving before the first models are loaded, nor when it stops."""

    def __init__(self, catalog: Catalog) -> None:
        super().__init__()
        self._catalog = catalog
        self._closing = threading.Lock()
        self._closed = False
        self._watches: set[_Watch] = set()
        self._show(HealthCheckResponse.NOT_SERVING)

    def Watch(self, request: Any, context: Any, send_response_callback: Callable[[Any], None]) -> None:  # noqa: N802 (the package's name)
        """Send the status of one name at once, and again whenever it changes; returns at once too."""
        watch = _Watch(send_response_callback)
        with self._closing:
            super().Watch(request, context, watch)
            if self._closed:
                watch(None)
            elif context.add_callback(lambda: self._watches.discard(watch)):
                self._watches.add(watch)

    def follow(self) -> None:
        """Wait until the first models are loaded, and show that."""
        with self._catalog.changed:
            self._catalog.changed.wait_for(lambda: not self._catalog.starting)
        self._show(HealthCheckResponse.SERVING)

    def close(self) -> None:
        """Send those who watch that nothing is served any longer, and end their streams."""
        with self._closing:
            self._closed = True
            self.enter_graceful_shutdown()
            for watch in list(self._watches):
                watch(None)

    def _show(self, status: Any) -> None:
        for name in _NAMES:
            self.set(name, status)


class _Watch:
    """Sends the messages of one stream, and ends it once only: the package would do so twice."""

    def __init__(self, send: Callable[[Any], None]) -> None:
        self._send = send
        self._ended = False

    def __call__(self, response: Any) -> None:
        """Send a message; None is the end."""
        if not self._ended:
            self._ended = response is None
            self._send(response)


MOST_CALLS: Final = 1024
"""Limit of calls at a time: those that run, that wait for a thread, or whose message still arrives."""

_IDLE_MILLISECONDS = 5 * 60 * 1000
_MAX_MESSAGE = 2**31 - 1
_MOST_TEXT_BYTES = 7000
"""Limit of a text as it is sent: clients fail on trailers of more than 8 KB without a word of them."""
_PRINTED = " !\"#$&'()*+,-./:;<=>?@[\\]^_`{|}~"
"""Characters that are sent as they are, as letters and digits are: all of ASCII's but the per cent."""
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
            try:
                if credentials is None:
                    port = self._server.add_insecure_port(address)
                else:
                    port = self._server.add_secure_port(address, credentials)
            except RuntimeError as error:
                raise SettingsError(f"Can't listen for gRPC on {address}: {error}") from error
            if not port:
                raise SettingsError(f"Can't listen for gRPC on {address}.")
        self._server.start()

    async def drain(self) -> None:
        """Accept no more calls, and wait for those that have begun, as long as they take."""
        stopped = self._server.stop(threading.TIMEOUT_MAX)
        await asyncio.to_thread(stopped.wait)

    async def cut_off(self) -> None:
        await asyncio.to_thread(self._server.stop, None)

    def close(self) -> None:
        """Stop at once, if it has not already."""
        self._server.stop(0)


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
    sent = quote(text.encode(errors="replace"), safe=_PRINTED)[:_MOST_TEXT_BYTES]
    context.abort(_STATUS_CODES[int(code)], unquote(re.sub("%.?$", "", sent), errors="ignore"))
    raise AssertionError(name) from error
