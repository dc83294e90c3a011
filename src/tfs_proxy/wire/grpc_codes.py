"""gRPC's status codes, and the HTTP statuses that correspond to them."""

from collections.abc import Mapping
from enum import IntEnum


class GrpcCode(IntEnum):
    """The codes by name and number: https://grpc.io/docs/guides/status-codes/."""

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16


HTTP_STATUS: Mapping[int, int] = {
    GrpcCode.OK: 200,
    GrpcCode.CANCELLED: 499,
    GrpcCode.UNKNOWN: 500,
    GrpcCode.INVALID_ARGUMENT: 400,
    GrpcCode.DEADLINE_EXCEEDED: 504,
    GrpcCode.NOT_FOUND: 404,
    GrpcCode.ALREADY_EXISTS: 409,
    GrpcCode.PERMISSION_DENIED: 403,
    GrpcCode.RESOURCE_EXHAUSTED: 429,
    GrpcCode.FAILED_PRECONDITION: 400,
    GrpcCode.ABORTED: 409,
    GrpcCode.OUT_OF_RANGE: 400,
    GrpcCode.UNIMPLEMENTED: 501,
    GrpcCode.INTERNAL: 500,
    GrpcCode.UNAVAILABLE: 503,
    GrpcCode.DATA_LOSS: 500,
    GrpcCode.UNAUTHENTICATED: 401,
}
"""TF Serving's HTTP status for each code (docs/reference/tensorflow-serving.md)."""

REFUSALS: Mapping[GrpcCode, tuple[int, ...]] = {
    GrpcCode.INVALID_ARGUMENT: (400, 405, 411, 414, 421, 431, 494),
    GrpcCode.DEADLINE_EXCEEDED: (408, 504),
    GrpcCode.RESOURCE_EXHAUSTED: (413,),
    GrpcCode.UNIMPLEMENTED: (403, 404, 501),
    GrpcCode.UNAVAILABLE: (429, 500, 502, 503),
}
"""A gRPC client's codes for the HTTP statuses with which nginx refuses requests."""
