"""The quick way through gRPC's Predict: tensors are looked at where they arrived.

PERF: a generated message would copy each tensor twice, into itself and out again. Whatever is not plain goes
the general way, `prediction_service`.
"""

from functools import lru_cache

from google.protobuf.message import DecodeError
from msgspec import Struct

from tfs_proxy.embedded.core.predict import outputs_of, signature_of
from tfs_proxy.embedded.core.servable import Array, LoadedServable, Runner, ServableSignature
from tfs_proxy.protos import ModelSpec
from tfs_proxy.protos.predict import response_bytes
from tfs_proxy.protos.views import plain_array
from tfs_proxy.wire.protobuf_reader import LENGTH, MalformedProtobuf, read_fields, text, views
from tfs_proxy.wire.protobuf_writer import Piece

_MODEL_SPEC, _INPUTS = 1, 2
_KEY, _VALUE = 1, 2
_MOST_SPEC_BYTES = 256


class PlainTarget(Struct, frozen=True):
    """The servable and the signature that a request names."""

    name: str
    version: int | None
    label: str | None
    signature: str


class PlainPredict(Struct, frozen=True):
    """A PredictRequest for all outputs, of plain tensors; the arrays are the message's memory."""

    target: PlainTarget
    arrays: dict[str, Array]


def read_plain(message: Piece) -> PlainPredict | None:
    """The request that a message holds; None if it is of another kind, or malformed."""
    target, arrays = None, {}
    try:
        for number, kind, content in read_fields(memoryview(message)):
            if number == _MODEL_SPEC and kind == LENGTH and target is None:
                target = _target(bytes(content)) if len(content) <= _MOST_SPEC_BYTES else None
            elif number == _INPUTS and kind == LENGTH:
                entry = dict(views(content))
                array = plain_array(entry[_VALUE])
                if array is None:
                    return None
                arrays[text(entry[_KEY])] = array
            else:
                return None
    except (MalformedProtobuf, DecodeError, KeyError):
        return None
    return None if target is None else PlainPredict(target, arrays)


@lru_cache(maxsize=256)
def _target(spec_bytes: bytes) -> PlainTarget:
    """Raises DecodeError."""
    spec = ModelSpec.FromString(spec_bytes)
    choice = spec.WhichOneof("version_choice")
    return PlainTarget(
        spec.name,
        spec.version.value if choice == "version" else None,
        spec.version_label if choice == "version_label" else None,
        spec.signature_name,
    )


def predict_plain(servable: LoadedServable, request: PlainPredict, *, as_list: bool) -> bytes | None:
    """A serialized PredictResponse as `prediction_service.predict` gives it; None if that is to do it.

    Raises ServingError.
    """
    signature = signature_of(servable, request.target.signature)
    runner = _runner(servable, signature)
    if runner is None or request.arrays.keys() != signature.inputs.keys():
        return None
    outputs = outputs_of(runner, signature.aliases, request.arrays)
    return response_bytes(servable.spec_bytes(signature.name), outputs, as_list=as_list)


def _runner(servable: LoadedServable, signature: ServableSignature) -> Runner | None:
    """The call for all outputs; None for a model that has no outputs."""
    return servable.runner(signature, signature.aliases) if signature.aliases else None
