"""Calls about one model: its signature from the model server, as the protocol's messages."""

from typing import Any, Final

from google.protobuf.message import DecodeError

from tfs_proxy.data.open_inference.metadata import ModelMetadata, model_metadata
from tfs_proxy.data.serving_json.requests import INTERNAL_SIGNATURE
from tfs_proxy.values.errors import UpstreamError
from tfs_proxy.values.signature import DEFAULT_SIGNATURE, Signature, TensorSpec
from tfs_proxy.wire.data_types import data_type_name
from tfs_proxy.wire.protos import (
    GetModelMetadataRequest,
    GetModelMetadataResponse,
    GetModelStatusRequest,
    GetModelStatusResponse,
    ModelVersionStatus,
    SignatureDef,
    SignatureDefMap,
)
from tfs_proxy.wire.protos.open_inference import ModelMetadataRequest, ModelMetadataResponse
from tfs_proxy.worker.router.forwarding import (
    MODEL_SERVICE,
    PREDICTION_SERVICE,
    AskedModel,
    ForwardedCall,
    TfServingForwarding,
)
from tfs_proxy.worker.router.open_inference.infer_request import asked_version, model_spec, parsed

GET_METADATA: Final = f"/{PREDICTION_SERVICE}/GetModelMetadata"
GET_STATUS: Final = f"/{MODEL_SERVICE}/GetModelStatus"
SIGNATURE_DEF: Final = "signature_def"


class ModelCalls:
    """Calls to the model's own server, for whose load they may wait."""

    def __init__(self, forwarding: TfServingForwarding) -> None:
        self._forwarding = forwarding

    async def metadata(self, message: bytes, context: Any) -> bytes:
        request = parsed(ModelMetadataRequest, message)
        told = await self._told(asked_version(request.name, request.version), context)
        answer = ModelMetadataResponse(name=told.name, versions=told.versions, platform=told.platform)
        for listed, tensors in ((answer.inputs, told.inputs), (answer.outputs, told.outputs)):
            for one in tensors:
                listed.add(name=one.name, datatype=one.datatype, shape=one.shape)
        return answer.SerializeToString()

    async def signature(self, asked: AskedModel, context: Any) -> Signature:
        """Default signature of a version, else the first by name. Raises RefusedCall."""
        signatures = await self.signatures(asked, context)
        if not signatures:
            raise UpstreamError(f"The model {asked.name} has no signature.")
        return signatures.get(DEFAULT_SIGNATURE) or signatures[min(signatures)]

    async def signatures(self, asked: AskedModel, context: Any) -> dict[str, Signature]:
        """Signatures of a version by name. Raises RefusedCall as the model server does."""
        request = GetModelMetadataRequest(model_spec=model_spec(asked), metadata_field=[SIGNATURE_DEF])
        call = ForwardedCall(GET_METADATA, asked, request.SerializeToString(), context)
        try:
            answer = GetModelMetadataResponse.FromString(await self._forwarding.forward(call))
            by_name = SignatureDefMap.FromString(answer.metadata[SIGNATURE_DEF].value).signature_def
        except DecodeError as error:
            raise UpstreamError("The model server's metadata can't be read.") from error
        names = by_name.keys() - {INTERNAL_SIGNATURE}
        return {name: _signature(name, by_name[name]) for name in names}

    async def _told(self, asked: AskedModel, context: Any) -> ModelMetadata:
        signature = await self.signature(asked, context)
        request = GetModelStatusRequest(model_spec=model_spec(AskedModel(asked.name)))
        call = ForwardedCall(GET_STATUS, asked, request.SerializeToString(), context)
        statuses = GetModelStatusResponse.FromString(await self._forwarding.forward(call))
        available = ModelVersionStatus.State.Value("AVAILABLE")
        versions = [one.version for one in statuses.model_version_status if one.state == available]
        return model_metadata(asked.name, sorted(versions), signature)


def _signature(name: str, message: SignatureDef) -> Signature:
    inputs, outputs = (
        {alias: _tensor(alias, tensors[alias]) for alias in sorted(tensors)}
        for tensors in (message.inputs, message.outputs)
    )
    return Signature(name, message.method_name, inputs, outputs)


def _tensor(alias: str, info: Any) -> TensorSpec:
    sizes = tuple(None if dim.size < 0 else dim.size for dim in info.tensor_shape.dim)
    is_known = info.HasField("tensor_shape") and not info.tensor_shape.unknown_rank
    return TensorSpec(alias, data_type_name(info.dtype), sizes if is_known else None)
