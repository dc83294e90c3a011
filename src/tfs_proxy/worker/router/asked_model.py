"""Model of a call of TF Serving's API, read from its message: pure."""

from typing import Final

from google.protobuf.message import DecodeError
from msgspec import Struct

from tfs_proxy.values.errors import BadInput, PayloadTooLarge
from tfs_proxy.values.memory import DEFAULT_DECODED_BYTES
from tfs_proxy.wire.protos import GetModelStatusRequest, ModelSpec, MultiInferenceRequest
from tfs_proxy.wire.protos.sizes import parsed_bytes

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
