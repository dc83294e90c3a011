"""GRPCInferenceService: each call becomes one to a model server, or to the supervisor."""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final, TypeVar

from google.protobuf.message import DecodeError

from tfs_proxy.data.open_inference.datatypes import model_metadata
from tfs_proxy.data.serving_json.requests import INTERNAL_SIGNATURE
from tfs_proxy.model.saved_model import read_signature
from tfs_proxy.serving.upstream.instances import ask
from tfs_proxy.serving.upstream.rest import signature_of
from tfs_proxy.settings.worker_environment import TranslatorOptions
from tfs_proxy.values.errors import BadInput, PayloadTooLarge, UpstreamError
from tfs_proxy.values.signature import DEFAULT_SIGNATURE, Signature, Target, default_signature
from tfs_proxy.wire.error_body import NO_MODEL_SERVER, error_text
from tfs_proxy.wire.grpc_codes import GrpcCode
from tfs_proxy.wire.grpc_serving import is_packed, unpacked
from tfs_proxy.wire.http_messages import HttpResponse
from tfs_proxy.wire.protos import (
    GetModelMetadataRequest,
    GetModelMetadataResponse,
    GetModelStatusRequest,
    GetModelStatusResponse,
    ModelSpec,
    ModelVersionStatus,
    PredictRequest,
    SignatureDefMap,
)
from tfs_proxy.wire.protos.open_inference import (
    ModelMetadataRequest,
    ModelMetadataResponse,
    ModelReadyRequest,
    ModelReadyResponse,
    ServerLiveResponse,
    ServerMetadataResponse,
    ServerReadyResponse,
)
from tfs_proxy.wire.routes import (
    GET_MODEL_STATUS,
    OPEN_INFERENCE,
    PREDICTION_SERVICE,
    READY,
    READY_VERSIONS,
    SERVER,
)
from tfs_proxy.worker.translator.inference_messages import (
    AskedModel,
    TranslatedRequest,
    asked_version,
    check_against,
    infer_answer,
    model_spec,
    parsed,
    translated,
)
from tfs_proxy.worker.translator.model_servers import SCRIPT_IS_THE_MODEL, ModelServers, RefusedCall

Answer = TypeVar("Answer")
Handler = Callable[[bytes, Any], Awaitable[bytes]]
"""Function that answers one call: takes a message and its ``grpc.aio.ServicerContext``, returns a message."""

SERVICE: Final = OPEN_INFERENCE.strip("/")
PREDICT: Final = f"{PREDICTION_SERVICE}Predict"
GET_METADATA: Final = f"{PREDICTION_SERVICE}GetModelMetadata"
SIGNATURE_DEF: Final = "signature_def"

ANSWERED_BY_SCRIPT: Final = (
    "inferences are answered by a script here, which takes them over HTTP only: POST them to "
    "/v2/models/NAME/infer (v2-script in TFS_PROXY_DOORS says so, or a script that is the model)"
)
NO_SUPERVISOR: Final = "the server's own state can't be asked for now"

LARGE_BYTES: Final = 64 * 1024
"""Least size of a message that a thread translates: many bytes would delay other calls."""

MOST_SMALL_BYTES: Final = 1024 * 1024
"""Limit of calls without tensors."""

_NOT_READY = frozenset({GrpcCode.NOT_FOUND, GrpcCode.INVALID_ARGUMENT, GrpcCode.FAILED_PRECONDITION})


class OpenInferenceService:
    """Calls of the protocol, which end at the model servers or the control API."""

    def __init__(self, servers: ModelServers, options: TranslatorOptions) -> None:
        self._servers = servers
        self._options = options
        self._control_socket = Path(options.control_socket)

    def methods(self) -> Mapping[str, Handler]:
        of_few_bytes: dict[str, Handler] = {
            "ServerLive": self._live,
            "ServerReady": self._ready,
            "ServerMetadata": self._metadata,
            "ModelReady": self._model_ready,
            "ModelMetadata": self._model_metadata,
        }
        handlers: dict[str, Handler] = {name: partial(_small, of_few_bytes[name]) for name in of_few_bytes}
        handlers["ModelInfer"] = self._infer
        return {name: partial(self._unpacked, handler) for name, handler in handlers.items()}

    async def _unpacked(self, handler: Handler, message: bytes, context: Any) -> bytes:
        if is_packed(message):
            message = await asyncio.to_thread(unpacked, message, self._options.message_bytes)
        return await handler(message, context)

    @staticmethod
    async def _live(_message: bytes, _context: Any) -> bytes:
        return ServerLiveResponse(live=True).SerializeToString()

    async def _ready(self, _: bytes, _context: Any) -> bytes:
        answer = await self._ask(READY.path)
        return ServerReadyResponse(ready=answer.status == HTTPStatus.OK).SerializeToString()

    async def _metadata(self, _: bytes, _context: Any) -> bytes:
        told = await self._told(SERVER.templates[0])
        return ServerMetadataResponse(**told).SerializeToString()

    async def _model_ready(self, message: bytes, context: Any) -> bytes:
        """Answer also for a model that is unknown or not loaded: this loads nothing."""
        request = parsed(ModelReadyRequest, message)
        asked = asked_version(request.name, request.version)
        versions = (await self._told(READY_VERSIONS.path)).get(asked.name, ())
        is_ready = bool(versions) if asked.number is None else asked.number in versions
        if is_ready and asked.label:
            try:
                await self._default_signature(asked, context)
            except RefusedCall as refused:
                if refused.code not in _NOT_READY:
                    raise
                is_ready = False
        return ModelReadyResponse(ready=is_ready).SerializeToString()

    async def _model_metadata(self, message: bytes, context: Any) -> bytes:
        request = parsed(ModelMetadataRequest, message)
        asked = asked_version(request.name, request.version)
        try:
            signature = await self._default_signature(asked, context)
        except RefusedCall as refused:
            raise await self._of_script(refused, asked) from None
        told = model_metadata(asked.name, await self._available(asked, context), signature)
        answer = ModelMetadataResponse(name=told.name, versions=told.versions, platform=told.platform)
        for listed, tensors in ((answer.inputs, told.inputs), (answer.outputs, told.outputs)):
            for one in tensors:
                listed.add(name=one.name, datatype=one.datatype, shape=one.shape)
        return answer.SerializeToString()

    async def _default_signature(self, asked: AskedModel, context: Any) -> Signature:
        """Default signature of a version, else the first by name. Raises RefusedCall."""
        signatures = await self._signatures(asked, context)
        if not signatures:
            raise UpstreamError(f"The model {asked.name} has no signature.")
        return default_signature(signatures) or signatures[min(signatures)]

    async def _signatures(self, asked: AskedModel, context: Any) -> dict[str, Signature]:
        """Signatures of a version by name. Raises RefusedCall as the model server does."""
        request = GetModelMetadataRequest(model_spec=model_spec(asked), metadata_field=[SIGNATURE_DEF])
        message = await self._servers.call(GET_METADATA, request.SerializeToString(), context)
        try:
            answer = GetModelMetadataResponse.FromString(message)
            by_name = SignatureDefMap.FromString(answer.metadata[SIGNATURE_DEF].value).signature_def
        except DecodeError as error:
            raise UpstreamError("The model server's metadata can't be read.") from error
        names = by_name.keys() - {INTERNAL_SIGNATURE}
        return {name: read_signature(name, memoryview(by_name[name].SerializeToString())) for name in names}

    async def _available(self, asked: AskedModel, context: Any) -> list[int]:
        """Versions that the model's server has loaded."""
        request = GetModelStatusRequest(model_spec=model_spec(AskedModel(asked.name)))
        message = await self._servers.call(GET_MODEL_STATUS, request.SerializeToString(), context)
        statuses = GetModelStatusResponse.FromString(message)
        available = ModelVersionStatus.State.Value("AVAILABLE")
        return sorted(one.version for one in statuses.model_version_status if one.state == available)

    async def _infer(self, message: bytes, context: Any) -> bytes:
        if self._options.by_script:
            raise RefusedCall(GrpcCode.UNIMPLEMENTED, ANSWERED_BY_SCRIPT)
        began = time.monotonic()
        request = await _off_the_loop_if_large(translated, message, self._options.decoded_bytes)
        left = request.timeout_seconds and max(request.timeout_seconds + began - time.monotonic(), 0.0)
        try:
            try:
                answer = await self._servers.call(PREDICT, request.message, context, left)
            except RefusedCall as refused:
                if request.signature is not None or f'"{DEFAULT_SIGNATURE}" not found' not in refused.text:
                    raise
                # The model server knows no default signature of the model, which may have one nevertheless.
                known = await self._signatures(request.asked, context)
                spec = ModelSpec(signature_name=signature_of(known, Target(request.asked.name)).name)
                # A message behind another one adds its fields to those of the first.
                message_named = request.message + PredictRequest(model_spec=spec).SerializeToString()
                answer = await self._servers.call(PREDICT, message_named, context, left)
        except RefusedCall as refused:
            raise await self._explained(refused, message, request, context) from None
        return await _off_the_loop_if_large(infer_answer, answer, request)

    async def _explained(
        self, refused: RefusedCall, message: bytes, request: TranslatedRequest, context: Any
    ) -> Exception:
        """Refusal of an inference in the client's terms, if more is known than by the model server."""
        if refused.code is GrpcCode.INVALID_ARGUMENT:
            return await self._misfit(message, request, context) or refused
        return await self._of_script(refused, request.asked)

    async def _of_script(self, refused: RefusedCall, asked: AskedModel) -> RefusedCall:
        """Refusal of a script that is the model: no model server knows it, and it serves nevertheless."""
        if refused.code is not GrpcCode.NOT_FOUND or asked.label:
            return refused
        try:
            versions = (await self._told(READY_VERSIONS.path)).get(asked.name, ())
        except RefusedCall:
            return refused
        is_script = asked.number in versions if asked.number is not None else bool(versions)
        return RefusedCall(GrpcCode.UNIMPLEMENTED, SCRIPT_IS_THE_MODEL) if is_script else refused

    async def _misfit(self, message: bytes, request: TranslatedRequest, context: Any) -> BadInput | None:
        """Error for the first input that does not fit the signature; None if all fit.

        The model server knows tensors by their names in the graph, clients by those in the signature.
        """
        try:
            signatures = await self._signatures(request.asked, context)
            signature = signature_of(signatures, Target(request.asked.name, signature=request.signature))
            await _off_the_loop_if_large(check_against, message, signature)
        except BadInput as misfit:
            return misfit
        except RefusedCall:
            pass
        return None

    async def _told(self, path: str) -> Any:
        """JSON document of an answer. Raises RefusedCall with the reason if there is none."""
        answer = await self._ask(path)
        if answer.status != HTTPStatus.OK:
            raise RefusedCall.for_status(answer.status, error_text(answer.body) or NO_MODEL_SERVER)
        return json.loads(answer.body)

    async def _ask(self, path: str) -> HttpResponse:
        try:
            return await asyncio.to_thread(ask, self._control_socket, "GET", path)
        except UpstreamError:
            raise RefusedCall(GrpcCode.UNAVAILABLE, NO_SUPERVISOR) from None


async def _off_the_loop_if_large(work: Callable[..., Answer], message: bytes, *more: Any) -> Answer:
    if len(message) < LARGE_BYTES:
        return work(message, *more)
    return await asyncio.to_thread(work, message, *more)


async def _small(handler: Handler, message: bytes, context: Any) -> bytes:
    if len(message) > MOST_SMALL_BYTES:
        raise PayloadTooLarge(f"The request has {len(message)} bytes; it can have {MOST_SMALL_BYTES}.")
    return await handler(message, context)
