"""Reflection of our servers on grpcio, by grpcio's own package: what tools like grpcurl ask for schemas."""

from collections.abc import Iterable
from typing import Any

from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection, reflection_pb2

from tfs_proxy.protos import POOL

SERVICE: str = reflection.SERVICE_NAME


def reflect(services: Iterable[str], server: Any) -> None:
    """Have a server that has not started tell the schemas of these services, and of this one."""
    for module in (health_pb2, reflection_pb2):
        POOL.AddSerializedFile(module.DESCRIPTOR.serialized_pb)
    reflection.enable_server_reflection((*services, SERVICE), server, POOL)
