"""Metadata of a model, as values that JSON and protobuf are written from."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from msgspec import Struct

from tfs_proxy.data.open_inference.datatypes import datatype_of
from tfs_proxy.values.signature import Signature, TensorSpec

PLATFORM: Final = "tensorflow_savedmodel"
SCRIPT_PLATFORM: Final = "python"

_UNKNOWN_SIZE = -1


class TensorMetadata(Struct, frozen=True):
    """One input or output: its datatype by the protocol's name, and its shape, -1 for free dimensions."""

    name: str
    datatype: str
    shape: tuple[int, ...]

    def as_json(self) -> Mapping[str, Any]:
        """Form in model metadata."""
        return {"name": self.name, "datatype": self.datatype, "shape": list(self.shape)}


class ModelMetadata(Struct, frozen=True):
    """Metadata of one model; a script model has neither inputs nor outputs that anyone knows."""

    name: str
    versions: tuple[str, ...]
    platform: str
    inputs: tuple[TensorMetadata, ...] = ()
    outputs: tuple[TensorMetadata, ...] = ()

    def as_json(self) -> Mapping[str, Any]:
        """Answer to ``GET /v2/models/M``."""
        return {
            "name": self.name,
            "versions": list(self.versions),
            "platform": self.platform,
            "inputs": [tensor.as_json() for tensor in self.inputs],
            "outputs": [tensor.as_json() for tensor in self.outputs],
        }


def model_metadata(name: str, versions: Iterable[int], signature: Signature | None) -> ModelMetadata:
    """Metadata of a model with this signature; None for a script model."""
    numbers = tuple(str(version) for version in versions)
    if signature is None:
        return ModelMetadata(name, numbers, SCRIPT_PLATFORM)
    inputs, outputs = (_tensors(tensors) for tensors in (signature.inputs, signature.outputs))
    return ModelMetadata(name, numbers, PLATFORM, inputs, outputs)


def _tensors(specs: Mapping[str, TensorSpec]) -> tuple[TensorMetadata, ...]:
    return tuple(_tensor(name, spec) for name, spec in specs.items())


def _tensor(name: str, spec: TensorSpec) -> TensorMetadata:
    """Convert a tensor; types that the protocol lacks have TensorFlow's name, an unknown rank is ``[-1]``."""
    datatype = datatype_of(spec)
    shape = (None,) if spec.shape is None else spec.shape
    sizes = tuple(_UNKNOWN_SIZE if size is None else size for size in shape)
    return TensorMetadata(name, spec.dtype.removeprefix("DT_") if datatype is None else datatype.name, sizes)
