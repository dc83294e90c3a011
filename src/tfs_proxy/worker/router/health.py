"""Health service grpc.health.v1 of the published port, for Kubernetes; it agrees with ``/ping``."""

import asyncio
from collections.abc import AsyncIterator, Collection
from contextlib import suppress
from http import HTTPStatus
from typing import Any, Final

from google.protobuf.message import DecodeError
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse

from tfs_proxy.values.names import printable
from tfs_proxy.wire.grpc_codes import GrpcCode
from tfs_proxy.wire.http_answer import BrokenAnswer
from tfs_proxy.wire.routes import PING
from tfs_proxy.worker.router.calls import RefusedCall
from tfs_proxy.worker.router.model_servers import ControlClient

SERVICE: Final = "grpc.health.v1.Health"
CHECK, WATCH = "Check", "Watch"
WATCH_PATH: Final = f"/{SERVICE}/{WATCH}"

_LOOK_SECONDS = 1.0
_SHOWN_CHARACTERS = 64


class RunHealth:
    """State of the whole run, which is also that of each of its ``services``, until ``stopping``."""

    def __init__(self, control: ControlClient, services: Collection[str], stopping: asyncio.Event) -> None:
        self._control = control
        self._names = {"", *services}
        self._stopping = stopping

    async def check(self, message: bytes, _context: Any) -> bytes:
        """Status of one name. Raises RefusedCall if nothing has it."""
        try:
            name: str = HealthCheckRequest.FromString(message).service
        except DecodeError:
            raise RefusedCall(GrpcCode.INVALID_ARGUMENT, "this is not a HealthCheckRequest") from None
        if name not in self._names:
            shown = printable(name[:_SHOWN_CHARACTERS])
            raise RefusedCall(GrpcCode.NOT_FOUND, f"there is no service {shown} here")
        return _answer(await self._status())

    async def watch(self, request: Any, _context: Any) -> AsyncIterator[bytes]:
        """Status of one name, and again whenever it changes, until the router stops."""
        is_known, told = request.service in self._names, None
        while True:
            is_last = self._stopping.is_set()
            status = await self._status() if is_known else HealthCheckResponse.SERVICE_UNKNOWN
            if status != told:
                told = status
                yield _answer(status)
            if is_last:
                return
            await _wait(self._stopping, _LOOK_SECONDS)

    async def _status(self) -> Any:
        if self._stopping.is_set():
            return HealthCheckResponse.NOT_SERVING
        try:
            answer = await self._control.ask("GET", PING.path)
        except (OSError, BrokenAnswer):
            return HealthCheckResponse.NOT_SERVING
        is_ready = answer.status == HTTPStatus.OK
        return HealthCheckResponse.SERVING if is_ready else HealthCheckResponse.NOT_SERVING


def _answer(status: Any) -> bytes:
    serialized: bytes = HealthCheckResponse(status=status).SerializeToString()
    return serialized


async def _wait(event: asyncio.Event, seconds: float) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
