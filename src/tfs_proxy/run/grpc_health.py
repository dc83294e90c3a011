"""Health service grpc.health.v1 of the published port, which agrees with ``/ping``.

Bodies are gRPC's frames of one message; nginx makes trailers of ``Grpc-Status`` and ``Grpc-Message``.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from http import HTTPStatus
from typing import Final

from tfs_proxy.run.readiness import Readiness, StackState
from tfs_proxy.wire.grpc_codes import GrpcCode
from tfs_proxy.wire.http_messages import HttpResponse, StreamedResponse
from tfs_proxy.wire.media_types import GRPC
from tfs_proxy.wire.routes import GRPC_SERVICES

LOOK_SECONDS: Final = 1.0


def _frame(message: bytes) -> bytes:
    return b"\0" + len(message).to_bytes(4, "big") + message


_SERVING, _NOT_SERVING, _UNKNOWN = (_frame(bytes((0x08, status))) for status in (1, 2, 3))
"""HealthCheckResponses, whose only field is the status."""

_KNOWN: Final = frozenset(
    _frame(b"\x0a" + bytes((len(name),)) + name.encode() if name else b"") for name in ("", *GRPC_SERVICES)
)
"""HealthCheckRequests for names that have a health: that of the whole run."""

_HEADERS: Final = {"Content-Type": GRPC, "Grpc-Status": str(int(GrpcCode.OK))}


def check(readiness: Readiness, request: bytes) -> HttpResponse:
    """Answer to ``Check``: NOT_FOUND for a name that nothing has."""
    if request in _KNOWN:
        return HttpResponse(HTTPStatus.OK, _status_of(readiness), _HEADERS)
    ending = {"Grpc-Status": str(int(GrpcCode.NOT_FOUND)), "Grpc-Message": "there is no such service here"}
    return HttpResponse(HTTPStatus.OK, headers={**_HEADERS, **ending})


def watch(readiness: Callable[[], Readiness], request: bytes) -> StreamedResponse:
    """Answer to ``Watch``: the status, and again whenever it changes, until the run stops."""

    async def statuses() -> AsyncGenerator[bytes]:
        told = b""
        is_last = False
        while not is_last:
            is_last = readiness().state is StackState.STOPPING
            status = _status_of(readiness()) if request in _KNOWN else _UNKNOWN
            if status != told:
                told = status
                yield status
            if not is_last:
                await asyncio.sleep(LOOK_SECONDS)

    return StreamedResponse(HTTPStatus.OK, statuses(), _HEADERS)


def _status_of(readiness: Readiness) -> bytes:
    return _SERVING if readiness.reason() is None else _NOT_SERVING
