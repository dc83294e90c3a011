"""Our messages and services for reflection by grpcio's package, which tools like grpcurl ask for schemas."""

from typing import Final

from google.protobuf.descriptor_pool import DescriptorPool
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2

from tfs_proxy.wire.protos import POOL

SERVICE: Final = "grpc.reflection.v1alpha.ServerReflection"


def reflected_pool() -> DescriptorPool:
    """The pool with the services of grpcio's packages, too."""
    for module in (health_pb2, reflection_pb2):
        POOL.AddSerializedFile(module.DESCRIPTOR.serialized_pb)
    return POOL
