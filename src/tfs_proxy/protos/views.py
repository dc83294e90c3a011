"""A serialized PredictResponse as arrays that look into it: what comes in over gRPC, not copied.

Generated messages would copy a tensor twice, into themselves and out again. Here its content, or the
list that is its content (``float_val``), is found in the bytes of the answer and looked at; everything
else (strings, lists of varints, lists cut short) is left to `tensors.to_array`.
"""

import math
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from tfs_proxy.protos.bfloat16 import from_bits
from tfs_proxy.protos.shapes import shape_of
from tfs_proxy.protos.tensors import CONTENT, DTYPE, FIXED_LISTS, SHAPE, STRINGS, numpy_type, to_array
from tfs_proxy.wire.data_types import DataType
from tfs_proxy.wire.dtypes import MAX_DIMENSIONS
from tfs_proxy.wire.protobuf_reader import LENGTH, VARINT, numbers, read_fields, read_varint, views
from tfs_proxy.wire.protobuf_writer import Piece, varint_field

_OUTPUTS, _MODEL_SPEC = 1, 2
_VERSION, _VALUE_OF_WRAPPER = 2, 1
_KEY, _VALUE = 1, 2
_VERSION_NUMBER = 3
_BITS = np.dtype(np.uint16)
_STRING_TYPE = varint_field(DTYPE, DataType.DT_STRING)
"""How a tensor of strings begins, whoever has written it."""
_FEW = 64


class Predicted(Struct, frozen=True):
    """What a model server predicted, and by which version (None if it does not say)."""

    outputs: dict[str, npt.NDArray[Any]]
    version: int | None


def read_response(message: Piece) -> Predicted:
    """Outputs by name, bfloat16 as float32, strings as object arrays of bytes.

    Arrays that share the message's memory are read-only. Raises ValueError if it can't be read.
    """
    outputs: dict[str, npt.NDArray[Any]] = {}
    version = None
    for number, kind, content in read_fields(memoryview(message)):
        if number == _OUTPUTS and kind == LENGTH:
            entry = {part: value for part, _, value in read_fields(content)}
            name = str(entry.get(_KEY, b""), "utf-8")
            outputs[name] = _array(entry.get(_VALUE, memoryview(b"")))
        elif number == _MODEL_SPEC and kind == LENGTH:
            version = _version(bytes(content))
    return Predicted(outputs, version)


@lru_cache(maxsize=256)
def _version(spec: bytes) -> int | None:
    """The version in a serialized ModelSpec."""
    wrapped = dict(views(memoryview(spec))).get(_VERSION)
    return None if wrapped is None else numbers(wrapped).get(_VALUE_OF_WRAPPER, 0)


def plain_array(tensor: memoryview) -> npt.NDArray[Any] | None:
    """The array of a serialized TensorProto if that takes next to no time; None if `to_array` is to read it.

    That is numbers whose content is in the message, which the array then shares, and a few strings.
    """
    if tensor[:2] == _STRING_TYPE:
        return _few_strings(tensor)
    values = _viewed(tensor)
    return None if values is None or values.dtype == np.bool_ else values


def _array(tensor: memoryview) -> npt.NDArray[Any]:
    values = _viewed(tensor, bits=True)
    return _parsed(tensor) if values is None else values


def _viewed(tensor: memoryview, *, bits: bool = False) -> npt.NDArray[Any] | None:
    """The array of a tensor whose memory is the message's; with ``bits`` bfloat16 becomes float32."""
    parts = _parts(tensor)
    if parts is None:
        return None
    dtype, shape, content = parts
    sizes = _sizes(shape)
    is_bits = bits and dtype == DataType.DT_BFLOAT16
    element = _BITS if is_bits else numpy_type(dtype)
    if sizes is None or element is None or element.hasobject:
        return None
    if math.prod(sizes) * element.itemsize != len(content):
        return None
    values = np.frombuffer(content, element)
    if is_bits:
        return from_bits(values).reshape(sizes)
    # NOTE: an array that is not aligned is copied: compiled code may rely on alignment.
    return (values if values.flags.aligned else values.copy()).reshape(sizes)


def _parts(tensor: memoryview) -> tuple[int, bytes, memoryview] | None:
    """Type, shape and content of a tensor that has each once, and nothing else."""
    dtype, shape, number, content = 0, b"", 0, None
    for part, kind, value in read_fields(tensor):
        if part == DTYPE and kind == VARINT:
            dtype = read_varint(value)
        elif part == SHAPE and kind == LENGTH and not shape:
            shape = bytes(value)
        elif part == _VERSION_NUMBER:
            continue
        elif kind == LENGTH and content is None and (part == CONTENT or part in FIXED_LISTS.values()):
            number, content = part, value
        else:
            return None
    if content is None or number not in {CONTENT, FIXED_LISTS.get(dtype)}:
        return None
    return dtype, shape, content


def _few_strings(tensor: memoryview) -> npt.NDArray[Any] | None:
    shape = b""
    strings: list[bytes] = []
    for part, kind, value in read_fields(tensor[len(_STRING_TYPE) :]):
        if part == SHAPE and kind == LENGTH and not shape:
            shape = bytes(value)
        elif part == STRINGS and kind == LENGTH and len(strings) < _FEW:
            strings.append(bytes(value))
        else:
            return None
    sizes = _sizes(shape)
    if sizes is None or math.prod(sizes) != len(strings):
        return None
    values = np.empty(len(strings), object)
    values[:] = strings
    return values.reshape(sizes)


@lru_cache(maxsize=256)
def _sizes(shape: bytes) -> tuple[int, ...] | None:
    """The sizes of a serialized TensorShapeProto; None if no array has as many, or one is not known."""
    sizes = shape_of(memoryview(shape))
    if sizes is None or len(sizes) > MAX_DIMENSIONS:
        return None
    known = tuple(size for size in sizes if size is not None)
    return known if len(known) == len(sizes) else None


def _parsed(tensor: memoryview) -> npt.NDArray[Any]:
    from google.protobuf.message import DecodeError

    from tfs_proxy.protos import TensorProto

    try:
        message = TensorProto.FromString(tensor)  # type: ignore[arg-type]  # any buffer will do
    except DecodeError as error:
        raise ValueError("the message cannot be read") from error
    if int(message.dtype) != DataType.DT_BFLOAT16:
        return to_array(message)
    message.dtype = DataType.DT_HALF  # type: ignore[assignment]  # as many bits, in the same places
    halves = to_array(message)
    return from_bits(halves.reshape(-1).view(_BITS)).reshape(halves.shape)
