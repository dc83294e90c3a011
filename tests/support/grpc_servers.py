"""gRPC servers of one method, whose answers a test makes."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc

THREADS = 8


def started(
    address: str, method: str, answer: Callable[[bytes, Any], bytes], options: Sequence[tuple[str, Any]] = ()
) -> grpc.Server:
    """A server at an address that has begun to answer calls of ``method``, which is /SERVICE/METHOD."""
    _, service, name = method.split("/")
    table = {name: grpc.unary_unary_rpc_method_handler(answer)}
    server = grpc.server(ThreadPoolExecutor(THREADS), options=options)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, table),))
    server.add_insecure_port(address)
    server.start()
    return server
