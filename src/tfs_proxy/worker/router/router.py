"""Server of the router: services on a unix socket, from the first call to the drain at SIGTERM."""

import asyncio
import logging
import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import grpc
from grpc import aio
from grpc_health.v1.health_pb2 import HealthCheckRequest
from grpc_reflection.v1alpha.reflection import aio as async_reflection
from grpc_reflection.v1alpha.reflection_pb2 import ServerReflectionRequest, ServerReflectionResponse

from tfs_proxy.settings.worker_environment import RouterOptions
from tfs_proxy.values.deployment import BY_SCRIPT, OFF
from tfs_proxy.values.errors import TfsProxyError
from tfs_proxy.wire.error_body import INTERNAL_ERROR
from tfs_proxy.wire.error_status import status_of_error
from tfs_proxy.wire.grpc_codes import GrpcCode
from tfs_proxy.wire.grpc_serving import keep_metadata_out_of_the_log, server_options
from tfs_proxy.wire.protos import reflection
from tfs_proxy.worker.router import health
from tfs_proxy.worker.router.calls import CallCounting, RefusedCall, messages_until
from tfs_proxy.worker.router.forwarding import Handler, LoadWaiting, NothingLoads, TfServingForwarding
from tfs_proxy.worker.router.model_servers import ControlClient, ModelServers
from tfs_proxy.worker.router.open_inference import SERVICE, OpenInferenceService

log = logging.getLogger(__name__)

StreamHandler = Callable[[Any, Any], AsyncIterator[Any]]
"""Function that answers a call with a stream, to one message or to those that it reads from the context."""

REFLECT: Final = "ServerReflectionInfo"
LOG_FORMAT: Final = "%(asctime)s %(levelname)s %(message)s"

_STATUS_CODES = {code.value[0]: code for code in grpc.StatusCode}


async def run(options: RouterOptions) -> int:
    """Serve until SIGTERM, then let calls end; returns the exit status."""
    logging.basicConfig(stream=sys.stderr, format=LOG_FORMAT, level=logging.INFO)
    keep_metadata_out_of_the_log()
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    control = ControlClient(Path(options.control_socket))
    servers = ModelServers(control)
    loads = LoadWaiting(control, servers, options.wait_seconds) if options.loads else NothingLoads(servers)
    forwarding = TfServingForwarding(servers, loads, options.answer_seconds, options.message_bytes)
    counting = CallCounting(Path(options.requests), behind_nginx=options.listen is None)
    services = {**forwarding.services()}
    if options.open_inference != OFF:
        by_script = options.open_inference == BY_SCRIPT
        services[SERVICE] = OpenInferenceService(
            forwarding, control, by_script=by_script, decoded_bytes=options.decoded_bytes
        ).methods()
    tables = {service: _table(service, methods, counting) for service, methods in services.items()}
    tables[health.SERVICE] = _health_table(health.RunHealth(control, tables, stopping), counting)
    tables[reflection.SERVICE] = _reflection_table(tables, stopping, counting)
    server = _server(options)
    for service, table in tables.items():
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, table),))
    await server.start()
    following = [asyncio.create_task(work) for work in (servers.follow(), servers.close_unused())]
    await stopping.wait()
    await server.stop(options.wait_seconds + options.answer_seconds)
    for task in following:
        task.cancel()
    await asyncio.wait(following)
    await servers.close()
    return 0


def _server(options: RouterOptions) -> Any:
    server = aio.server(options=server_options(options.message_bytes))
    server.add_insecure_port(f"unix:{options.socket}")
    if options.listen:
        server.add_insecure_port(options.listen)
    return server


def _table(service: str, methods: Mapping[str, Handler], counting: CallCounting) -> dict[str, Any]:
    return {
        name: grpc.unary_unary_rpc_method_handler(_guarded(handler, f"/{service}/{name}", counting))
        for name, handler in methods.items()
    }


def _health_table(state: health.RunHealth, counting: CallCounting) -> dict[str, Any]:
    checks: dict[str, Handler] = {health.CHECK: state.check}
    watch = grpc.unary_stream_rpc_method_handler(
        _counted(state.watch, health.WATCH_PATH, counting), HealthCheckRequest.FromString
    )
    return {**_table(health.SERVICE, checks, counting), health.WATCH: watch}


def _reflection_table(
    services: Iterable[str], stopping: asyncio.Event, counting: CallCounting
) -> dict[str, Any]:
    servicer = async_reflection.ReflectionServicer(
        (*services, reflection.SERVICE), reflection.reflected_pool()
    )

    def tell(_: Any, context: Any) -> AsyncIterator[Any]:
        answers: AsyncIterator[Any] = servicer.ServerReflectionInfo(
            messages_until(stopping, context), context
        )
        return answers

    handler = grpc.stream_stream_rpc_method_handler(
        _counted(tell, f"/{reflection.SERVICE}/{REFLECT}", counting),
        ServerReflectionRequest.FromString,
        ServerReflectionResponse.SerializeToString,
    )
    return {REFLECT: handler}


def _guarded(handler: Handler, path: str, counting: CallCounting) -> Handler:
    async def handle(message: bytes, context: Any) -> bytes:
        with counting.call(path, context) as call:
            try:
                answer = await handler(message, context)
            except Exception as error:  # noqa: BLE001 - unexpected errors are logged
                refused = _refused(error)
                call.code = refused.code
            else:
                call.code = GrpcCode.OK
                return answer
        trailers = counting.shown(refused.trailers) or context.trailing_metadata() or ()
        await context.abort(_STATUS_CODES[refused.code], refused.text, tuple(trailers))
        raise refused

    return handle


def _counted(stream: StreamHandler, path: str, counting: CallCounting) -> StreamHandler:
    """Count ``stream`` as one call of the method at ``path``."""

    async def handle(messages: Any, context: Any) -> AsyncIterator[Any]:
        with counting.call(path, context) as call:
            async for answer in stream(messages, context):
                yield answer
            call.code = GrpcCode.OK

    return handle


def _refused(error: Exception) -> RefusedCall:
    if isinstance(error, RefusedCall):
        return error
    if isinstance(error, TfsProxyError):
        return RefusedCall.for_status(status_of_error(error), str(error))
    log.error("a call failed", exc_info=error)
    return RefusedCall(GrpcCode.INTERNAL, INTERNAL_ERROR)
