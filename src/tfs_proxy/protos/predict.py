"""PredictRequest and PredictResponse around arrays: what goes over gRPC on either side.

Written as wire format, so that a tensor is copied once, into the message itself.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from tfs_proxy.protos import ModelSpec, PredictResponse
from tfs_proxy.protos.tensors import to_array, to_pieces
from tfs_proxy.wire.protobuf_writer import field, map_field, message_field

Arrays = Mapping[str, npt.NDArray[Any]]


def model_spec(
    name: str, version: int | None = None, label: str | None = None, signature: str | None = None
) -> bytes:
    """A serialized ModelSpec; neither version nor label means the newest version."""
    spec = ModelSpec(name=name, signature_name=signature or "")
    if version is not None:
        spec.version.value = version
    elif label is not None:
        spec.version_label = label
    return spec.SerializeToString()


def request_bytes(spec: bytes, inputs: Arrays, outputs: Iterable[str] = ()) -> bytes:
    """A serialized PredictRequest; ``outputs`` names the wanted ones, none means all.

    Raises TypeError for an array that no tensor can be made of.
    """
    pieces = message_field(1, [spec])
    pieces += map_field(2, {name: to_pieces(array) for name, array in inputs.items()})
    pieces += [field(3, name.encode()) for name in outputs]
    return b"".join(pieces)


def response_bytes(spec: bytes, outputs: Arrays, *, as_list: bool = True) -> bytes:
    """A serialized PredictResponse; ``as_list`` as in `to_pieces`."""
    tensors = {name: to_pieces(array, as_list=as_list) for name, array in outputs.items()}
    pieces = map_field(1, tensors)
    return b"".join([*pieces, *message_field(2, [spec])])


def response_arrays(message: bytes) -> dict[str, npt.NDArray[np.generic]]:
    """The outputs of a serialized PredictResponse, by name.

    Raises ValueError if a tensor can't be read.
    """
    return {name: to_array(tensor) for name, tensor in PredictResponse.FromString(message).outputs.items()}
