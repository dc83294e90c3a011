"""PredictRequest and PredictResponse around arrays, for tests that speak gRPC to a model server."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from tfs_proxy.wire.protos import PredictRequest, PredictResponse
from tfs_proxy.wire.protos.tensors import to_array, to_bytes

Arrays = Mapping[str, npt.NDArray[Any]]


def request_bytes(spec: bytes, inputs: Arrays, outputs: Iterable[str] = ()) -> bytes:
    """A serialized PredictRequest; ``outputs`` names the wanted ones, none means all."""
    request = PredictRequest(output_filter=outputs)
    request.model_spec.ParseFromString(spec)
    for name, array in inputs.items():
        request.inputs[name].ParseFromString(to_bytes(array))
    return request.SerializeToString()


def response_arrays(message: bytes) -> dict[str, npt.NDArray[np.generic]]:
    """The outputs of a serialized PredictResponse, by name."""
    return {name: to_array(tensor) for name, tensor in PredictResponse.FromString(message).outputs.items()}
