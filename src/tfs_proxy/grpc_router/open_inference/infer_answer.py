"""A PredictResponse to the ModelInferResponse with the same tensors, as raw contents: pure."""

import math
import struct
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from google.protobuf.message import DecodeError

from tfs_proxy.errors import UpstreamError
from tfs_proxy.grpc_router.open_inference.infer_request import TranslatedRequest
from tfs_proxy.open_inference.datatypes import datatype_of
from tfs_proxy.protos import ModelSpec, TensorProto, TensorShapeProto
from tfs_proxy.protos.open_inference import InferParameter, ModelInferResponse
from tfs_proxy.protos.tensors import CONTENT, DTYPE, FIXED_LISTS, SHAPE, to_array
from tfs_proxy.signature import TensorSpec
from tfs_proxy.wire.data_types import DataType, data_type_name
from tfs_proxy.wire.protobuf_reader import (
    LENGTH,
    NOTHING,
    VARINT,
    MalformedProtobuf,
    map_entry,
    read_fields,
    read_varint,
    views,
)
from tfs_proxy.wire.protobuf_writer import Piece, field, message_field

_OUTPUTS, _SPEC = 1, 2
_PARAMETERS, _RAW = 4, 6
_ERROR_MESSAGE, _INFER_RESPONSE = 1, 2

FINAL_RESPONSE: Final = "triton_final_response"
"""The parameter by which Triton's clients know that no more answers come to a request of a stream."""

_TRUE: Final = InferParameter(bool_param=True).SerializeToString()
_LENGTH: Final = struct.Struct("<I")
_UNREADABLE: Final = "The model server's answer can't be read"


def infer_answer(message: bytes, request: TranslatedRequest) -> bytes:
    """A serialized ModelInferResponse; raises UpstreamError if the protocol has no way to say an output."""
    try:
        tensors, version = _read(message)
        names = request.outputs or sorted(tensors)
        answer = ModelInferResponse(
            model_name=request.asked.name, model_version=version or request.asked.version, id=request.id
        )
        raw: list[Piece] = []
        for name in names:
            raw += message_field(_RAW, [_add_output(answer, name, tensors[name])])
    except (MalformedProtobuf, DecodeError, ValueError, KeyError) as error:
        raise UpstreamError(f"{_UNREADABLE}: {error}.") from error
    return b"".join([answer.SerializeToString(), *_parameters(request.parameters), *raw])


def _parameters(parameters: Mapping[str, bytes]) -> list[Piece]:
    """The client's own, as they came."""
    return [
        piece
        for name, value in parameters.items()
        for piece in message_field(_PARAMETERS, [field(1, name.encode()), field(2, value)])
    ]


def _read(message: bytes) -> tuple[dict[str, memoryview], str]:
    """The outputs as serialized TensorProtos, and the version that answered, "" if it is not told."""
    tensors, version = {}, ""
    for number, content in views(memoryview(message)):
        if number == _OUTPUTS:
            name, tensor = map_entry(content)
            tensors[name] = tensor
        elif number == _SPEC:
            spec = ModelSpec.FromString(bytes(content))
            version = str(spec.version.value) if spec.HasField("version") else ""
    return tensors, version


def _add_output(answer: ModelInferResponse, name: str, tensor: memoryview) -> Piece:
    """Add an output's name, datatype and shape; returns its raw bytes."""
    data_type, shape, values = _parts(tensor)
    datatype = datatype_of(TensorSpec(name, data_type_name(data_type), None))
    if datatype is None:
        raise UpstreamError(
            f'The output "{name}" is {data_type_name(data_type)}, which the protocol has no datatype for.'
        )
    answer.outputs.add(name=name, datatype=datatype.name, shape=shape)
    if datatype.item_bytes is not None:
        wanted_bytes = math.prod(shape) * datatype.item_bytes
        for number, content in values:
            if number in {CONTENT, FIXED_LISTS.get(data_type)} and len(content) == wanted_bytes:
                return content
    return _listed(tensor, data_type)


def _parts(tensor: memoryview) -> tuple[int, Sequence[int], list[tuple[int, memoryview]]]:
    """Type, shape, and the fields that hold values if there is one such field; none if there are several."""
    data_type, shape = 0, NOTHING
    values: list[tuple[int, memoryview]] = []
    for number, kind, content in read_fields(tensor):
        if number == DTYPE and kind == VARINT:
            data_type = read_varint(content)
        elif number == SHAPE and kind == LENGTH:
            shape = content
        elif kind == LENGTH and len(values) <= 1:
            values.append((number, content))
    sizes = [dim.size for dim in TensorShapeProto.FromString(bytes(shape)).dim]
    return data_type, sizes, values if len(values) == 1 else []


def _listed(tensor: memoryview, data_type: int) -> bytes:
    """The raw bytes of a tensor whose values have to be read one by one."""
    message = TensorProto.FromString(bytes(tensor))
    if data_type == DataType.DT_BFLOAT16:
        message.dtype = DataType.DT_HALF  # type: ignore[assignment]  # as many bits, in the same places
    array: Any = to_array(message)
    if data_type == DataType.DT_STRING:
        return b"".join(part for value in array.flat for part in (_LENGTH.pack(len(value)), value))
    return np.ascontiguousarray(array, array.dtype.newbyteorder("<")).tobytes()


def stream_answer(answer: bytes) -> bytes:
    """A serialized ModelStreamInferResponse around an answer, which is the only one to its request."""
    return b"".join(message_field(_INFER_RESPONSE, [answer, *_parameters({FINAL_RESPONSE: _TRUE})]))


def stream_error(text: str, request_id: str) -> bytes:
    """The same for a request that failed; clients know by its id which one that is."""
    unanswered = ModelInferResponse(id=request_id).SerializeToString()
    return b"".join([field(_ERROR_MESSAGE, text.encode()), field(_INFER_RESPONSE, unanswered)])
