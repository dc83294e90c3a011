"""Which status of gRPC goes with what a method raises."""

import logging

from google.protobuf.message import DecodeError

from tfs_proxy.embedded.errors import ServingError, of_memory
from tfs_proxy.errors import Overloaded, PayloadTooLarge, RequestError
from tfs_proxy.wire.grpc_codes import GrpcCode

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
