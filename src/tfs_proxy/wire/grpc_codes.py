"""gRPC's status codes, and the HTTP statuses that correspond to them."""

from collections.abc import Mapping
from enum import IntEnum

GrpcCode = IntEnum(
    "GrpcCode",
    "OK CANCELLED UNKNOWN INVALID_ARGUMENT DEADLINE_EXCEEDED NOT_FOUND ALREADY_EXISTS "
    "PERMISSION_DENIED RESOURCE_EXHAUSTED FAILED_PRECONDITION ABORTED OUT_OF_RANGE UNIMPLEMENTED "
    "INTERNAL UNAVAILABLE DATA_LOSS UNAUTHENTICATED",
    start=0,
)
"""Codes by name, in the order of their numbers: https://grpc.io/docs/guides/status-codes/."""

_STATUSES = (200, 499, 500, 400, 504, 404, 409, 403, 429, 400, 409, 400, 501, 500, 503, 500, 401)
HTTP_STATUS: Mapping[int, int] = dict(zip(GrpcCode, _STATUSES, strict=True))
"""TF Serving's HTTP status for each code (docs/reference/tensorflow-serving.md)."""

REFUSALS: Mapping[GrpcCode, tuple[int, ...]] = {
    GrpcCode.INVALID_ARGUMENT: (400, 405, 411, 414, 421, 431, 494),
    GrpcCode.DEADLINE_EXCEEDED: (408, 504),
    GrpcCode.RESOURCE_EXHAUSTED: (413,),
    GrpcCode.UNIMPLEMENTED: (403, 404, 501),
    GrpcCode.UNAVAILABLE: (429, 500, 502, 503),
    GrpcCode.UNAUTHENTICATED: (495, 496),
}
"""A gRPC client's codes for the HTTP statuses with which nginx refuses requests."""
