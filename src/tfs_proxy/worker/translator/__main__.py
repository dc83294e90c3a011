"""``python -m tfs_proxy.worker.translator OPTIONS``: the process, which the supervisor starts."""

import asyncio
import logging
import signal
import sys
from collections.abc import Awaitable, Callable
from typing import Any, Final

import grpc
from grpc import aio
from grpc_reflection.v1alpha.reflection import enable_server_reflection

from tfs_proxy.settings.worker_environment import TranslatorOptions, read
from tfs_proxy.values.errors import TfsProxyError
from tfs_proxy.wire.error_body import INTERNAL_ERROR
from tfs_proxy.wire.error_status import status_of_error
from tfs_proxy.wire.grpc_codes import GrpcCode
from tfs_proxy.wire.grpc_serving import (
    REFLECTION,
    keep_metadata_out_of_the_log,
    reflected_pool,
    server_options,
)
from tfs_proxy.worker.translator.model_servers import ModelServers, RefusedCall
from tfs_proxy.worker.translator.open_inference import SERVICE, Handler, OpenInferenceService

log = logging.getLogger("tfs_proxy.worker.translator")

LOG_FORMAT: Final = "%(asctime)s %(levelname)s %(message)s"

_STATUS_CODES = {code.value[0]: code for code in grpc.StatusCode}


async def serve_until_stopped(options: TranslatorOptions) -> int:
    """Serve until SIGTERM, then let calls end; returns the exit status."""
    logging.basicConfig(stream=sys.stderr, format=LOG_FORMAT, level=logging.INFO)
    keep_metadata_out_of_the_log()
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    servers = ModelServers(options.gates, options.answer_seconds)
    service = OpenInferenceService(servers, options)
    server = aio.server(options=server_options(options.message_bytes))
    server.add_insecure_port(f"unix:{options.socket}")
    if options.listen:
        server.add_insecure_port(options.listen)
    methods = {
        name: grpc.unary_unary_rpc_method_handler(_guarded(handler))
        for name, handler in service.methods().items()
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, methods),))
    reflected = {SERVICE, REFLECTION, *options.reflected}
    enable_server_reflection(reflected, server, reflected_pool())
    await server.start()
    await stopping.wait()
    await server.stop(options.answer_seconds)
    await servers.close()
    return 0


def _guarded(handler: Handler) -> Callable[[bytes, Any], Awaitable[bytes]]:
    async def handle(message: bytes, context: Any) -> bytes:
        try:
            return await handler(message, context)
        except RefusedCall as error:
            refused = error
        except TfsProxyError as error:
            refused = RefusedCall.for_status(status_of_error(error), str(error))
        except Exception as error:
            log.exception("a call failed", exc_info=error)
            refused = RefusedCall(GrpcCode.INTERNAL, INTERNAL_ERROR)
        await context.abort(_STATUS_CODES[refused.code], refused.text)
        raise refused

    return handle


if __name__ == "__main__":
    sys.exit(asyncio.run(serve_until_stopped(read(TranslatorOptions, sys.argv[1]))))
