"""GRPCInferenceService: passes each call to the models' servers or the supervisor."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from functools import partial
from typing import Any, Final, TypeVar

from tfs_proxy.values.errors import BadInput, PayloadTooLarge
from tfs_proxy.values.memory import DEFAULT_DECODED_BYTES
from tfs_proxy.values.signature import DEFAULT_SIGNATURE
from tfs_proxy.wire.error_body import NO_SHARED_MEMORY
from tfs_proxy.wire.grpc_codes import GrpcCode
from tfs_proxy.worker.router.calls import CallCounting, RefusedCall, messages_until
from tfs_proxy.worker.router.control_client import ControlClient
from tfs_proxy.worker.router.forwarding import (
    PREDICTION_SERVICE,
    SCRIPT_IS_THE_MODEL,
    ForwardedCall,
    Handler,
    TfServingForwarding,
)
from tfs_proxy.worker.router.open_inference.infer_answer import infer_answer, stream_answer, stream_error
from tfs_proxy.worker.router.open_inference.infer_request import (
    TranslatedRequest,
    check_against,
    request_id,
    translated,
)
from tfs_proxy.worker.router.open_inference.model_calls import ModelCalls
from tfs_proxy.worker.router.open_inference.server_calls import ServerCalls

Answer = TypeVar("Answer")

SERVICE: Final = "inference.GRPCInferenceService"
STREAM: Final = "ModelStreamInfer"
STREAM_PATH: Final = f"/{SERVICE}/{STREAM}"
PREDICT: Final = f"/{PREDICTION_SERVICE}/Predict"

ANSWERED_BY_SCRIPT: Final = (
    "inferences are answered by a script here, which takes them over HTTP only: POST them to "
    "/v2/models/NAME/infer (TFS_PROXY_V2 sets who answers)"
)
NO_SETTINGS: Final = "traces and the log are set up by the environment, not by calls"

UNSUPPORTED: Final[Mapping[str, str]] = {
    **{
        f"{kind}SharedMemory{call}": NO_SHARED_MEMORY
        for kind in ("System", "Cuda")
        for call in ("Status", "Register", "Unregister")
    },
    "TraceSetting": NO_SETTINGS,
    "LogSettings": NO_SETTINGS,
}
"""Calls of Triton's clients that are not answered here, with the reason."""

LARGE_BYTES: Final = 64 * 1024
"""Least size of a message that a thread translates: many bytes would delay other calls."""

MOST_SMALL_BYTES: Final = 1024 * 1024
"""Limit of calls without tensors."""


class OpenInferenceService:
    """Calls of the protocol, with Triton's; if ``by_script``, the models answer no inferences.

    The values of one request may take ``decoded_bytes`` of memory.
    """

    def __init__(
        self,
        forwarding: TfServingForwarding,
        control: ControlClient,
        counting: CallCounting,
        refusal_of: Callable[[Exception], RefusedCall],
        stopping: asyncio.Event,
        *,
        by_script: bool,
        decoded_bytes: int = DEFAULT_DECODED_BYTES,
    ) -> None:
        self._forwarding = forwarding
        self._counting = counting
        self._refusal_of = refusal_of
        self._by_script = by_script
        self._decoded_bytes = decoded_bytes
        self._models = ModelCalls(forwarding)
        self._server = ServerCalls(control, self._models)
        self._stopping = stopping

    def methods(self) -> Mapping[str, Handler]:
        of_few_bytes: dict[str, Handler] = {
            "ModelMetadata": self._models.metadata,
            "ModelConfig": self._models.config,
            **self._server.methods(),
            **{name: partial(_refuse, text) for name, text in UNSUPPORTED.items()},
        }
        handlers: dict[str, Handler] = {name: partial(_small, of_few_bytes[name]) for name in of_few_bytes}
        handlers["ModelInfer"] = self._infer
        return {name: partial(self._unpacked, handler) for name, handler in handlers.items()}

    async def stream(self, _: Any, context: Any) -> AsyncIterator[bytes]:
        """Answer each message of ModelStreamInfer; failures are sent in the stream, which goes on.

        Once ``stopping`` is set, it ends after the message that is being answered.
        """
        async for message in messages_until(self._stopping, context):
            yield await self._streamed(message, context)

    async def _streamed(self, message: bytes, context: Any) -> bytes:
        with self._counting.message(STREAM_PATH, context) as counted:
            try:
                answer = stream_answer(await self._unpacked(self._infer, message, context))
            except Exception as error:  # noqa: BLE001 - as for a call of its own
                refused = self._refusal_of(error)
                counted.code = refused.code
                return stream_error(refused.text, request_id(message))
            counted.code = GrpcCode.OK
            return answer

    async def _unpacked(self, handler: Handler, message: bytes, context: Any) -> bytes:
        return await handler(await self._forwarding.unpacked(message), context)

    async def _infer(self, message: bytes, context: Any) -> bytes:
        if self._by_script:
            raise RefusedCall(GrpcCode.UNIMPLEMENTED, ANSWERED_BY_SCRIPT)
        request = await _off_the_loop_if_large(translated, message, self._decoded_bytes)
        call = ForwardedCall(PREDICT, request.asked, request.message, context)
        try:
            answer = await self._forwarding.forward(call)
        except RefusedCall as refused:
            raise await self._explained(refused, message, request, context) from None
        return await _off_the_loop_if_large(infer_answer, answer, request)

    async def _explained(
        self, refused: RefusedCall, message: bytes, request: TranslatedRequest, context: Any
    ) -> Exception:
        """Refusal of an inference in the client's terms, if more is known than by the model server."""
        if refused.code is GrpcCode.INVALID_ARGUMENT:
            return await self._misfit(message, request, context) or refused
        if refused.code is not GrpcCode.NOT_FOUND or self._forwarding.has_model_server(request.asked.name):
            return refused
        # A model that no model server knows, and that is listed nevertheless, is a script.
        is_script = await self._server.lists(request.asked.name)
        return RefusedCall(GrpcCode.UNIMPLEMENTED, SCRIPT_IS_THE_MODEL) if is_script else refused

    async def _misfit(self, message: bytes, request: TranslatedRequest, context: Any) -> BadInput | None:
        """Error for the first input that does not fit the signature; None if all fit.

        The model server knows tensors by their names in the graph, clients by those in the signature.
        """
        try:
            signatures = await self._models.signatures(request.asked, context)
            signature = signatures.get(request.signature or DEFAULT_SIGNATURE)
            if signature is not None:
                await _off_the_loop_if_large(check_against, message, signature)
        except BadInput as misfit:
            return misfit
        except RefusedCall:
            pass
        return None


async def _off_the_loop_if_large(work: Callable[..., Answer], message: bytes, *more: Any) -> Answer:
    if len(message) < LARGE_BYTES:
        return work(message, *more)
    return await asyncio.to_thread(work, message, *more)


async def _small(handler: Handler, message: bytes, context: Any) -> bytes:
    if len(message) > MOST_SMALL_BYTES:
        raise PayloadTooLarge(f"The request has {len(message)} bytes; it can have {MOST_SMALL_BYTES}.")
    return await handler(message, context)


async def _refuse(text: str, _message: bytes, _context: Any) -> bytes:
    raise RefusedCall(GrpcCode.UNIMPLEMENTED, text)
