"""Translation of a PredictResponse to a ModelInferResponse with the same tensors, as raw contents: pure."""

import math
from typing import Any, Final

import numpy as np
from google.protobuf.message import DecodeError

from tfs_proxy.data.open_inference.datatypes import datatype_of, raw_strings
from tfs_proxy.values.errors import UpstreamError
from tfs_proxy.values.signature import TensorSpec
from tfs_proxy.wire.data_types import DataType, data_type_name
from tfs_proxy.wire.protobuf_reader import NOTHING
from tfs_proxy.wire.protos import TensorProto
from tfs_proxy.wire.protos.open_inference import ModelInferResponse
from tfs_proxy.wire.protos.predict import response_parts, tensor_parts
from tfs_proxy.wire.protos.tensors import to_array
from tfs_proxy.worker.router.open_inference.infer_request import TranslatedRequest

_UNREADABLE: Final = "The model server's answer can't be read"


def infer_answer(message: bytes, request: TranslatedRequest) -> bytes:
    """Serialize a ModelInferResponse. Raises UpstreamError if the protocol can't express an output."""
    try:
        tensors, version = response_parts(message)
        answered = request.asked.version if version is None else str(version)
        answer = ModelInferResponse(model_name=request.asked.name, model_version=answered, id=request.id)
        for name, value in request.parameters.items():
            answer.parameters[name].CopyFrom(value)
        for name in request.outputs or sorted(tensors):
            _add_output(answer, name, tensors[name])
    except (DecodeError, ValueError, KeyError) as error:
        raise UpstreamError(f"{_UNREADABLE}: {error}.") from error
    return answer.SerializeToString()


def _add_output(answer: ModelInferResponse, name: str, tensor: memoryview) -> None:
    parts, message = tensor_parts(tensor), None
    if parts is None:
        message = TensorProto.FromString(bytes(tensor))
        parts = message.dtype, tuple(dim.size for dim in message.tensor_shape.dim), NOTHING
    data_type, shape, content = parts
    datatype = datatype_of(TensorSpec(name, data_type_name(data_type), None))
    if datatype is None:
        raise UpstreamError(
            f'The output "{name}" is {data_type_name(data_type)}, which the protocol has no datatype for.'
        )
    answer.outputs.add(name=name, datatype=datatype.name, shape=shape)
    is_whole = datatype.item_bytes is not None and len(content) == math.prod(shape) * datatype.item_bytes
    raw = bytes(content) if message is None and is_whole else _listed(tensor)
    answer.raw_output_contents.append(raw)


def _listed(tensor: memoryview) -> bytes:
    """Raw bytes of a tensor whose values have to be read one by one."""
    message = TensorProto.FromString(bytes(tensor))
    data_type = int(message.dtype)
    if data_type == DataType.DT_BFLOAT16:
        message.dtype = DataType.DT_HALF  # type: ignore[assignment]  # as many bits, in the same places
    array: Any = to_array(message)
    if data_type == DataType.DT_STRING:
        return raw_strings(array)
    return np.ascontiguousarray(array, array.dtype.newbyteorder("<")).tobytes()
