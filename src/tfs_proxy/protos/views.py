"""A serialized PredictResponse as arrays that look into it: what comes in over gRPC, not copied.

Generated messages would copy a tensor twice, into themselves and out again. Here its content, or the
list that is its content (``float_val``), is found in the bytes of the answer and looked at; everything
else (strings, lists of varints, lists cut short) is left to `tensors.to_array`.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from google.protobuf.message import DecodeError

from tfs_proxy.protos import ModelSpec, TensorProto, TensorShapeProto
from tfs_proxy.protos.bfloat16 import from_bits
from tfs_proxy.protos.tensors import CONTENT, DTYPE, FIXED_LISTS, NUMPY_TYPES, SHAPE, to_array
from tfs_proxy.wire.data_types import DataType
from tfs_proxy.wire.protobuf_reader import LENGTH, VARINT, read_fields, read_varint
from tfs_proxy.wire.protobuf_writer import Piece

_OUTPUTS, _MODEL_SPEC = 1, 2
_KEY, _VALUE = 1, 2
_VERSION_NUMBER = 3
_BITS = np.dtype(np.uint16)


@dataclass(frozen=True, slots=True)
class Predicted:
    """What a model server predicted, and by which version (None if it does not say)."""

    outputs: dict[str, npt.NDArray[Any]]
    version: int | None


def read_response(message: Piece) -> Predicted:
    """Outputs by name, bfloat16 as float32, strings as object arrays of bytes.

    Arrays that share the message's memory are read-only. Raises ValueError if it can't be read.
    """
    outputs: dict[str, npt.NDArray[Any]] = {}
    version = None
    try:
        for number, kind, content in read_fields(memoryview(message)):
            if number == _OUTPUTS and kind == LENGTH:
                entry = {part: value for part, _, value in read_fields(content)}
                name = str(entry.get(_KEY, b""), "utf-8")
                outputs[name] = _array(entry.get(_VALUE, memoryview(b"")))
            elif number == _MODEL_SPEC and kind == LENGTH:
                spec = ModelSpec.FromString(content)  # type: ignore[arg-type]  # any buffer will do
                version = spec.version.value if spec.HasField("version") else None
    except DecodeError as error:
        raise ValueError("the message cannot be read") from error
    return Predicted(outputs, version)


def _array(tensor: memoryview) -> npt.NDArray[Any]:
    dtype, shape, number, content = 0, b"", 0, None
    for part, kind, value in read_fields(tensor):
        if part == DTYPE and kind == VARINT:
            dtype = read_varint(value)
        elif part == SHAPE and kind == LENGTH:
            shape = value  # type: ignore[assignment]
        elif part == _VERSION_NUMBER:
            continue
        elif kind == LENGTH and content is None and (part == CONTENT or part in FIXED_LISTS.values()):
            number, content = part, value
        else:
            return _parsed(tensor)
    if content is None or number not in {CONTENT, FIXED_LISTS.get(dtype)}:
        return _parsed(tensor)
    known = TensorShapeProto.FromString(shape)
    sizes = [dim.size for dim in known.dim]
    element = _BITS if dtype == DataType.DT_BFLOAT16 else NUMPY_TYPES.get(dtype)
    if known.unknown_rank or element is None or element.hasobject:
        return _parsed(tensor)
    if math.prod(sizes) * element.itemsize != len(content) or min(sizes, default=0) < 0:
        return _parsed(tensor)
    values = np.frombuffer(content, element)
    if dtype == DataType.DT_BFLOAT16:
        return from_bits(values).reshape(sizes)
    # NOTE: an array that is not aligned is copied: compiled code may rely on alignment.
    return (values if values.flags.aligned else values.copy()).reshape(sizes)


def _parsed(tensor: memoryview) -> npt.NDArray[Any]:
    message = TensorProto.FromString(tensor)  # type: ignore[arg-type]  # any buffer will do
    if int(message.dtype) != DataType.DT_BFLOAT16:
        return to_array(message)
    message.dtype = DataType.DT_HALF  # type: ignore[assignment]  # as many bits, in the same places
    halves = to_array(message)
    return from_bits(halves.reshape(-1).view(_BITS)).reshape(halves.shape)
