"""How a call ends that gets no answer of a model server: a gRPC status, a sentence and trailing metadata."""

from collections.abc import Mapping, Sequence
from typing import Final

from tfs_proxy.wire.grpc_codes import GrpcCode

Metadata = Sequence[tuple[str, str | bytes]]

CODES: Final[Mapping[int, GrpcCode]] = {
    400: GrpcCode.INVALID_ARGUMENT,
    404: GrpcCode.NOT_FOUND,
    409: GrpcCode.ALREADY_EXISTS,
    413: GrpcCode.RESOURCE_EXHAUSTED,
    500: GrpcCode.INTERNAL,
    501: GrpcCode.UNIMPLEMENTED,
    503: GrpcCode.UNAVAILABLE,
    504: GrpcCode.DEADLINE_EXCEEDED,
    507: GrpcCode.RESOURCE_EXHAUSTED,
}
"""What an HTTP status of the package's own means to a client of gRPC."""


class RefusedCall(Exception):
    """Ends a call with ``code`` and ``text``."""

    def __init__(self, code: GrpcCode, text: str, trailers: Metadata = ()) -> None:
        super().__init__(text)
        self.code, self.text, self.trailers = code, text, trailers

    @classmethod
    def for_status(cls, status: int, text: str) -> "RefusedCall":
        """The refusal of a call for the reason of an HTTP answer."""
        return cls(CODES.get(status, GrpcCode.UNKNOWN), text)
