"""Services of TF Serving: each call is sent to the least busy model server of the model that it names."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import quote

from google.protobuf.message import DecodeError
from grpc import aio
from msgspec import Struct, field

from tfs_proxy.serving.upstream.grpc_channels import CONNECT_FAILED
from tfs_proxy.values.errors import BadInput, PayloadTooLarge
from tfs_proxy.values.memory import DEFAULT_DECODED_BYTES
from tfs_proxy.values.names import is_model_name, is_served_model_name, printable
from tfs_proxy.wire.error_body import MODEL_SERVER, NO_MODEL_SERVER, error_text, not_answered
from tfs_proxy.wire.grpc_codes import GrpcCode
from tfs_proxy.wire.grpc_serving import is_packed, unpacked
from tfs_proxy.wire.header_names import GRPC_MODEL
from tfs_proxy.wire.http_answer import BrokenAnswer
from tfs_proxy.wire.protos import GetModelStatusRequest, ModelSpec, MultiInferenceRequest
from tfs_proxy.wire.protos.sizes import parsed_bytes
from tfs_proxy.wire.routes import SERVED
from tfs_proxy.worker.router.calls import Metadata, RefusedCall
from tfs_proxy.worker.router.model_servers import ControlClient, ModelServerChannel, ModelServers

MULTI_INFERENCE: Final = "MultiInference"

NO_SPEC: Final = "Missing ModelSpec"
NO_NAME: Final = "ModelSpec has no name specified."
SEVERAL_MODELS: Final = "All ModelSpecs in a MultiInferenceRequest must access the same model name."
"""Text of TF Serving's own, like the two above."""


class AskedModel(Struct, frozen=True):
    """Model that a call names, and the version's number or its label, if it names one of them."""

    name: str
    number: int | None = None
    label: str = ""

    @property
    def version(self) -> str:
        """Number or label as text, "" without either."""
        return self.label if self.number is None else str(self.number)


Handler = Callable[[bytes, Any], Awaitable[bytes]]
"""Function that answers one call: takes a message and its ``grpc.aio.ServicerContext``, returns a message."""

Services = Mapping[str, Mapping[str, Handler]]

PREDICTION_SERVICE: Final = "tensorflow.serving.PredictionService"
MODEL_SERVICE: Final = "tensorflow.serving.ModelService"
PUBLISHED: Final = {
    PREDICTION_SERVICE: ("Predict", "Classify", "Regress", MULTI_INFERENCE, "GetModelMetadata"),
    MODEL_SERVICE: ("GetModelStatus",),
}

SCRIPT_IS_THE_MODEL: Final = (
    "this model is a script, which answers over HTTP only: there is no gRPC API of it"
)

_OWN_DEADLINE = "Deadline Exceeded"
"""Text of gRPC's own if the model server does not answer in time."""

_NOT_PASSED_ON = frozenset({"user-agent"})
"""Metadata that gRPC sets itself."""


MARGIN_SECONDS: Final = 5.0
"""Time for which a call waits longer for a load than the control API does."""

_SHOWN_CHARACTERS = 64


class NoServerReady(Exception):
    """The model has no model server: it is not loaded, or is being restarted."""


class NotConnected(Exception):
    """No connection to the model server could be opened: nothing was sent."""


class ForwardedCall(Struct, frozen=True):
    """One call of the method at ``path``; ``tried`` has the sockets where it was not accepted."""

    path: str
    asked: AskedModel
    message: bytes
    context: Any
    tried: list[str] = field(default_factory=list)


class LoadWaiting:
    """Asks ``GET /served/NAME/ready`` of the control API, which answers within ``wait_seconds``."""

    def __init__(self, control: ControlClient, servers: ModelServers, wait_seconds: float) -> None:
        self._control, self._servers = control, servers
        self._wait_seconds = wait_seconds + MARGIN_SECONDS

    async def until_ready(self, model: str) -> None:
        """Wait until the model serves. Raises RefusedCall with the reason if it won't."""
        if not is_served_model_name(model):
            shown = printable(model[:_SHOWN_CHARACTERS])
            raise RefusedCall(GrpcCode.NOT_FOUND, f"model {shown} is not loaded")
        try:
            async with asyncio.timeout(self._wait_seconds):
                answer = await self._control.ask("GET", SERVED.path.format(name=quote(model, safe="")))
        except TimeoutError:
            raise RefusedCall(GrpcCode.UNAVAILABLE, f"model {model} is still loading") from None
        except (OSError, BrokenAnswer):
            raise RefusedCall(GrpcCode.UNAVAILABLE, NO_MODEL_SERVER) from None
        if answer.status != HTTPStatus.OK:
            raise RefusedCall.for_status(answer.status, error_text(answer.body) or NO_MODEL_SERVER)
        await self._servers.refresh()


class NothingLoads:
    """Replacement of `LoadWaiting` if one archive is served: calls load nothing."""

    def __init__(self, servers: ModelServers) -> None:
        self._servers = servers

    async def until_ready(self, model: str) -> None:
        """Return if a model server is ready by now. Raises RefusedCall if one is starting or restarting."""
        await self._servers.refresh()
        if not self._servers.are_ready(model):
            raise RefusedCall(GrpcCode.UNAVAILABLE, NO_MODEL_SERVER)


class TfServingForwarding:
    """PredictionService and ModelService in front of the model servers' own.

    An answer may take ``answer_seconds``; a message has at most ``message_bytes``, unpacked.
    """

    def __init__(
        self,
        servers: ModelServers,
        loads: LoadWaiting | NothingLoads,
        answer_seconds: float,
        message_bytes: int,
    ) -> None:
        self._servers, self._loads = servers, loads
        self._answer_seconds, self._message_bytes = answer_seconds, message_bytes

    def services(self) -> Services:
        return {
            service: {method: partial(self._answer, service, method) for method in methods}
            for service, methods in PUBLISHED.items()
        }

    async def _answer(self, service: str, method: str, message: bytes, context: Any) -> bytes:
        message = await self.unpacked(message)
        asked = asked_model(method, message)
        return await self.forward(ForwardedCall(f"/{service}/{method}", asked, message, context))

    async def unpacked(self, message: bytes) -> bytes:
        """Decompress a message in gzip. Raises PayloadTooLarge and BadInput."""
        if is_packed(message):
            return await asyncio.to_thread(unpacked, message, self._message_bytes)
        return message

    async def forward(self, call: ForwardedCall) -> bytes:
        """Answer by a model server that has the model; the call may wait for its load.

        Raises RefusedCall with the model server's own status, or the reason why none answers.
        """
        call.context.set_trailing_metadata(_model_trailer(call.asked))
        try:
            return await self._send(call)
        except NoServerReady:
            await self._loads.until_ready(call.asked.name)
        except NotConnected:
            pass
        try:
            return await self._send(call)
        except (NoServerReady, NotConnected):
            raise self._no_answer(call.asked.name) from None

    def has_model_server(self, model: str) -> bool:
        """True if a model server has had the model since it was loaded."""
        return self._servers.have_had(model)

    def _no_answer(self, model: str) -> RefusedCall:
        if self.has_model_server(model):
            return RefusedCall(GrpcCode.UNAVAILABLE, NO_MODEL_SERVER)
        # The model is ready without a model server.
        return RefusedCall(GrpcCode.UNIMPLEMENTED, SCRIPT_IS_THE_MODEL)

    async def _send(self, call: ForwardedCall) -> bytes:
        """Send the call. Raises NoServerReady, or NotConnected after adding the socket to ``tried``."""
        with self._servers.for_call(call.asked.name, call.tried) as server:
            if server is None:
                raise NoServerReady
            call.tried.append(server.socket)
            return await self._answer_of(server, call)

    async def _answer_of(self, server: ModelServerChannel, call: ForwardedCall) -> bytes:
        limit_seconds, left_seconds = self._answer_seconds, call.context.time_remaining()
        if left_seconds is not None:
            limit_seconds = min(limit_seconds, left_seconds)
        method, metadata = server.method(call.path), _passed_on(call.context)
        answering = method(call.message, timeout=limit_seconds, metadata=metadata)
        try:
            answer: bytes = await answering
        except aio.AioRpcError as error:
            raise _refusal(error, call.asked, limit_seconds) from None
        trailers = await answering.trailing_metadata()
        if trailers:
            call.context.set_trailing_metadata((*trailers, *_model_trailer(call.asked)))
        return answer


def _refusal(error: aio.AioRpcError, asked: AskedModel, limit_seconds: float) -> Exception:
    """Exception for a failed call: the model server's own status, or the connection's failure."""
    code, text = GrpcCode(error.code().value[0]), error.details() or ""
    if code is GrpcCode.UNAVAILABLE and CONNECT_FAILED in text:
        return NotConnected()
    if code is GrpcCode.DEADLINE_EXCEEDED and text == _OWN_DEADLINE:
        text = not_answered(MODEL_SERVER, limit_seconds)
    return RefusedCall(code, text, (*error.trailing_metadata(), *_model_trailer(asked)))


def _passed_on(context: Any) -> Metadata:
    """Metadata of the client for the model server, with its request id and trace.

    grpcio accepts values from clients that it refuses to send.
    """
    metadata = context.invocation_metadata()
    return tuple((key, value) for key, value in metadata if key not in _NOT_PASSED_ON and _can_be_sent(value))


def _can_be_sent(value: str | bytes) -> bool:
    """True if gRPC allows the value: any bytes of binary metadata, printable ASCII of other."""
    return isinstance(value, bytes) or (value.isascii() and value.isprintable())


def _model_trailer(asked: AskedModel) -> Metadata:
    """Trailer that tells nginx the model for its line of the call; else the call counts for no model."""
    if not is_model_name(asked.name):
        return ()
    version = asked.version if is_model_name(asked.version) else "-"
    return ((GRPC_MODEL.lower(), f"{asked.name} {version}"),)


def asked_model(method: str, message: bytes) -> AskedModel:
    """Model of a call of ``method``, such as ``Predict``.

    Raises BadInput if the message is broken or does not name one model, and PayloadTooLarge.
    """
    try:
        specs = _specs(method, message)
    except DecodeError:
        raise BadInput(f"The request is not a message of {method}") from None
    if not all(spec.name for spec in specs):
        raise BadInput(NO_NAME)
    if len({spec.name for spec in specs}) > 1:
        raise BadInput(SEVERAL_MODELS)
    spec = specs[0]
    if spec.HasField("version"):
        return AskedModel(spec.name, spec.version.value)
    return AskedModel(spec.name, label=spec.version_label)


def _specs(method: str, message: bytes) -> list[ModelSpec]:
    """Read the ModelSpecs, at least one; raises BadInput without any."""
    if method != MULTI_INFERENCE:
        # Each request with a ModelSpec has it as its first field; this message has no other, so that the
        # tensors stay bytes.
        request = GetModelStatusRequest.FromString(message)
        if not request.HasField("model_spec"):
            raise BadInput(NO_SPEC)
        return [request.model_spec]
    if parsed_bytes(MultiInferenceRequest, message, DEFAULT_DECODED_BYTES) > DEFAULT_DECODED_BYTES:
        raise PayloadTooLarge("The request has too many fields.")
    tasks = MultiInferenceRequest.FromString(message).tasks
    if not tasks:
        raise BadInput(NO_NAME)
    if not all(task.HasField("model_spec") for task in tasks):
        raise BadInput(NO_SPEC)
    return [task.model_spec for task in tasks]
