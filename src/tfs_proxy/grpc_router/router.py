"""The router's server: services on a unix socket, from the first call to the drain at SIGTERM."""

import asyncio
import contextlib
import logging
import signal
import sys
from typing import Any, Final

import grpc
from grpc import aio

from tfs_proxy.errors import TfsProxyError
from tfs_proxy.grpc_router.forwarding import Handler, Services, TfServingForwarding
from tfs_proxy.grpc_router.gates import Gates
from tfs_proxy.grpc_router.load_waiting import LoadWaiting
from tfs_proxy.grpc_router.model_servers import ModelServers
from tfs_proxy.grpc_router.options import RouterOptions
from tfs_proxy.grpc_router.refused_call import RefusedCall
from tfs_proxy.wire.error_body import INTERNAL_ERROR
from tfs_proxy.wire.error_status import status_of_error
from tfs_proxy.wire.grpc_codes import GrpcCode

log = logging.getLogger(__name__)

LOG_FORMAT: Final = "%(asctime)s %(levelname)s %(message)s"
IDENTITY_AND_GZIP: Final = 0b101

_STATUS_CODES = {code.value[0]: code for code in grpc.StatusCode}


async def run(options: RouterOptions) -> int:
    """Serve until SIGTERM, then let calls end; returns the exit status."""
    logging.basicConfig(stream=sys.stderr, format=LOG_FORMAT, level=logging.INFO)
    # A client's metadata that is not UTF-8 would be worth a traceback to it.
    logging.getLogger("grpc._cython").setLevel(logging.CRITICAL)
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    servers = ModelServers(Gates(options.gates, options.instances))
    loads = LoadWaiting(options.control_socket, options.wait_seconds)
    forwarding = TfServingForwarding(servers, loads, options.answer_seconds, options.message_bytes)
    server = _server(forwarding.services(), options)
    await server.start()
    tidying = asyncio.create_task(servers.close_forsaken())
    await stopping.wait()
    await server.stop(options.wait_seconds + options.answer_seconds)
    tidying.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await tidying
    await servers.close()
    return 0


def _server(services: Services, options: RouterOptions) -> Any:
    """A ``grpc.aio.Server`` of these services that is not started yet."""
    server = aio.server(
        options=[
            ("grpc.max_receive_message_length", options.message_bytes),
            ("grpc.max_send_message_length", -1),
            # gRPC itself would unpack a message whole before it looks at the limit.
            ("grpc.per_message_decompression", 0),
            ("grpc.compression_enabled_algorithms_bitset", IDENTITY_AND_GZIP),
        ]
    )
    for service, methods in services.items():
        table = {
            name: grpc.unary_unary_rpc_method_handler(_guarded(handler)) for name, handler in methods.items()
        }
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, table),))
    server.add_insecure_port(f"unix:{options.socket}")
    return server


def _guarded(handler: Handler) -> Handler:
    """``handler`` with its errors as statuses of gRPC."""

    async def handle(message: bytes, context: Any) -> bytes:
        try:
            return await handler(message, context)
        except Exception as error:  # noqa: BLE001 - what is not foreseen is logged
            refused = _refused(error)
        trailers = refused.trailers or context.trailing_metadata() or ()
        await context.abort(_STATUS_CODES[refused.code], refused.text, tuple(trailers))
        raise refused

    return handle


def _refused(error: Exception) -> RefusedCall:
    if isinstance(error, RefusedCall):
        return error
    if isinstance(error, TfsProxyError):
        return RefusedCall.for_status(status_of_error(error), str(error))
    log.error("a call failed", exc_info=error)
    return RefusedCall(GrpcCode.INTERNAL, INTERNAL_ERROR)
