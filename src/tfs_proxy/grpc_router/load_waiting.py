"""A call without a gate waits here: the control API knows whether the model is going to be ready."""

import asyncio
from http import HTTPStatus
from pathlib import Path
from typing import Final
from urllib.parse import quote

from tfs_proxy.grpc_router.refused_call import RefusedCall
from tfs_proxy.names import is_served_model_name, printable
from tfs_proxy.wire.error_body import NO_MODEL_SERVER, error_text
from tfs_proxy.wire.grpc_codes import GrpcCode
from tfs_proxy.wire.http_answer import BrokenAnswer, NoAnswer, read_response
from tfs_proxy.wire.http_messages import HttpResponse

MARGIN_SECONDS: Final = 5.0
"""What is waited longer than the control API does."""

MOST_ANSWER_BYTES: Final = 1024 * 1024
_SHOWN_CHARACTERS = 64


class LoadWaiting:
    """Asks ``GET /served/NAME/ready`` on ``control_socket``, which answers within ``wait_seconds``."""

    def __init__(self, control_socket: Path, wait_seconds: float) -> None:
        self._control_socket = control_socket
        self._wait_seconds = wait_seconds + MARGIN_SECONDS

    async def until_ready(self, model: str) -> None:
        """Return once the model serves; raises RefusedCall with the reason if it is not going to."""
        if not is_served_model_name(model):
            shown = printable(model[:_SHOWN_CHARACTERS])
            raise RefusedCall(GrpcCode.NOT_FOUND, f"model {shown} is not loaded")
        try:
            async with asyncio.timeout(self._wait_seconds):
                answer = await self._ask(model)
        except TimeoutError:
            raise RefusedCall(GrpcCode.UNAVAILABLE, f"model {model} is still loading") from None
        except (OSError, BrokenAnswer):
            raise RefusedCall(GrpcCode.UNAVAILABLE, NO_MODEL_SERVER) from None
        if answer.status != HTTPStatus.OK:
            raise RefusedCall.for_status(answer.status, error_text(answer.body) or NO_MODEL_SERVER)

    async def _ask(self, model: str) -> HttpResponse:
        reader, writer = await asyncio.open_unix_connection(self._control_socket)
        try:
            path = f"/served/{quote(model, safe='')}/ready"
            writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
            answer = b""
            while (part := await reader.read(MOST_ANSWER_BYTES)) and len(answer) < MOST_ANSWER_BYTES:
                answer += part
        finally:
            writer.close()
        if not answer:
            raise NoAnswer(f"no answer to {path}")
        parts = iter([answer])
        return read_response(lambda: next(parts, b""))
