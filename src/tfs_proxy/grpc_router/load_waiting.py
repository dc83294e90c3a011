"""A call without a gate waits here: the control API knows whether the model is going to be ready."""

import asyncio
from http import HTTPStatus
from typing import Final
from urllib.parse import quote

from tfs_proxy.grpc_router.control_client import ControlClient
from tfs_proxy.grpc_router.refused_call import RefusedCall
from tfs_proxy.names import is_served_model_name, printable
from tfs_proxy.wire.error_body import NO_MODEL_SERVER, error_text
from tfs_proxy.wire.grpc_codes import GrpcCode
from tfs_proxy.wire.http_answer import BrokenAnswer

MARGIN_SECONDS: Final = 5.0
"""What is waited longer than the control API does."""

_SHOWN_CHARACTERS = 64


class LoadWaiting:
    """Asks ``GET /served/NAME/ready`` of the control API, which answers within ``wait_seconds``."""

    def __init__(self, control: ControlClient, wait_seconds: float) -> None:
        self._control = control
        self._wait_seconds = wait_seconds + MARGIN_SECONDS

    async def until_ready(self, model: str) -> None:
        """Return once the model serves; raises RefusedCall with the reason if it is not going to."""
        if not is_served_model_name(model):
            shown = printable(model[:_SHOWN_CHARACTERS])
            raise RefusedCall(GrpcCode.NOT_FOUND, f"model {shown} is not loaded")
        try:
            async with asyncio.timeout(self._wait_seconds):
                answer = await self._control.ask("GET", f"/served/{quote(model, safe='')}/ready")
        except TimeoutError:
            raise RefusedCall(GrpcCode.UNAVAILABLE, f"model {model} is still loading") from None
        except (OSError, BrokenAnswer):
            raise RefusedCall(GrpcCode.UNAVAILABLE, NO_MODEL_SERVER) from None
        if answer.status != HTTPStatus.OK:
            raise RefusedCall.for_status(answer.status, error_text(answer.body) or NO_MODEL_SERVER)


class NothingLoads:
    """In the place of `LoadWaiting` if one archive is served: nothing is loaded by a call."""

    async def until_ready(self, _: str) -> None:
        """Raise RefusedCall at once: the model server is starting, or being restarted."""
        raise RefusedCall(GrpcCode.UNAVAILABLE, NO_MODEL_SERVER)
