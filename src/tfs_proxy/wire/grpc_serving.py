"""Common parts of our grpcio servers: limits as grpcio's options, messages in gzip, reflection."""

import logging
from collections.abc import Sequence
from typing import Final

from google.protobuf.descriptor_pool import DescriptorPool

from tfs_proxy.wire.packed_body import gunzip

MOST_HEADER_BYTES = 1 << 16
REFLECTION: Final = "grpc.reflection.v1alpha.ServerReflection"

_IDENTITY_AND_GZIP = 0b101
_GZIP_MAGIC = b"\x1f\x8b"
"""Magic number of gzip; no protobuf message begins so: its first field would have the wire type 7."""


def server_options(message_bytes: int) -> Sequence[tuple[str, int]]:
    """Options of a server that takes messages of so many bytes, which `unpacked` decompresses."""
    return (
        ("grpc.max_receive_message_length", message_bytes),
        ("grpc.max_send_message_length", -1),
        # gRPC itself would decompress a whole message before it checks the limit.
        ("grpc.per_message_decompression", 0),
        ("grpc.compression_enabled_algorithms_bitset", _IDENTITY_AND_GZIP),
        # Between its soft and its hard limit gRPC would refuse some calls at random.
        ("grpc.max_metadata_size", MOST_HEADER_BYTES),
        ("grpc.absolute_max_metadata_size", MOST_HEADER_BYTES),
    )


def keep_metadata_out_of_the_log() -> None:
    """Stops grpcio from logging a traceback for metadata that is not UTF-8."""
    logging.getLogger("grpc._cython").setLevel(logging.CRITICAL)


def is_packed(message: bytes) -> bool:
    """True if the message is in gzip."""
    return message.startswith(_GZIP_MAGIC)


def unpacked(message: bytes, limit_bytes: int) -> bytes:
    """Decompresses a message in gzip. Raises PayloadTooLarge and BadInput."""
    return gunzip(message, limit_bytes) if is_packed(message) else message


def reflected_pool() -> DescriptorPool:
    """The pool of our messages and services with those of grpcio's packages, for tools like grpcurl."""
    from grpc_health.v1 import health_pb2
    from grpc_reflection.v1alpha import reflection_pb2

    from tfs_proxy.wire.protos import POOL

    for module in (health_pb2, reflection_pb2):
        POOL.AddSerializedFile(module.DESCRIPTOR.serialized_pb)
    return POOL
