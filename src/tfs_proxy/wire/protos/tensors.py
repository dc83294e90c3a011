"""TensorProto to numpy and back, between the wire and the code that computes.

An array's own memory goes out and comes in as ``tensor_content``; the ``*_val`` lists are read by
TensorFlow's rule (a list that is too short repeats its last value, an empty one means zeros) and
written if a client expects them. bfloat16 needs no library: it is float32 here, bits on the wire.
"""

import itertools
import math
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tfs_proxy.values.memory import STRING_BYTES
from tfs_proxy.wire import dtypes
from tfs_proxy.wire.data_types import DataType, data_type_name
from tfs_proxy.wire.protobuf_writer import Piece, field, memory, message_field, varint, varint_field

if TYPE_CHECKING:
    from tfs_proxy.wire.protos import TensorProto

_NUMBERS = {kind: number for number, kind in dtypes.NUMPY_TYPES.items()}
_ML_DTYPES = "ml_dtypes"

DTYPE = 1
SHAPE = 2
CONTENT = 4
STRINGS = 8
_WHOLE = 7
_HALVES = 13

FIXED_LISTS: Mapping[int, int] = {
    DataType.DT_FLOAT: 5,
    DataType.DT_DOUBLE: 6,
    DataType.DT_COMPLEX64: 9,
    DataType.DT_BOOL: 11,
    DataType.DT_COMPLEX128: 12,
}
"""Types whose packed list is the array's own memory, with that list's field number."""

_VARINT_LISTS: Mapping[int, int] = {
    **dict.fromkeys(
        (
            DataType.DT_INT32,
            DataType.DT_UINT8,
            DataType.DT_INT16,
            DataType.DT_INT8,
            DataType.DT_UINT16,
        ),
        _WHOLE,
    ),
    DataType.DT_INT64: 10,
    DataType.DT_UINT32: 16,
    DataType.DT_UINT64: 17,
}

_NARROW = {number for number, field_number in _VARINT_LISTS.items() if field_number == _WHOLE}
_INT32 = np.dtype(np.int32)
_BITS: frozenset[int] = frozenset({DataType.DT_BFLOAT16, DataType.DT_HALF})
_LISTS: Mapping[int, int] = {**FIXED_LISTS, **_VARINT_LISTS, **dict.fromkeys(_BITS, _HALVES)}
"""Field numbers of the lists, by the types that have one of numbers."""

_PAIRS: dict[int, np.dtype[Any]] = {
    DataType.DT_COMPLEX64: np.dtype(np.float32),
    DataType.DT_COMPLEX128: np.dtype(np.float64),
}


def numpy_type(data_type: int) -> np.dtype[Any] | None:
    """Numpy type of a TensorProto.dtype; None if there is none, as for quantized numbers."""
    return _bfloat16() if data_type == DataType.DT_BFLOAT16 else dtypes.NUMPY_TYPES.get(data_type)


@cache
def _bfloat16() -> np.dtype[Any] | None:
    """Numpy type of ml_dtypes, which is imported for the first such array; None if it is not installed."""
    with suppress(ImportError):
        import ml_dtypes

        kind: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
        return kind
    return None


def data_type_of(array: npt.NDArray[Any]) -> int:
    """TensorProto.dtype of an array; text and bytes of any width are DataType.DT_STRING.

    Raises TypeError for an array that no tensor can be made of.
    """
    kind = array.dtype.newbyteorder("=")
    number = _NUMBERS.get(kind)
    if number is None and _ML_DTYPES in sys.modules and kind == _bfloat16():  # else there are no such arrays
        number = DataType.DT_BFLOAT16
    if number is not None:
        return number
    if array.dtype.kind in "SU":
        return DataType.DT_STRING
    raise TypeError(f"there is no tensor type for {array.dtype}")


def listed_bytes(tensor: "TensorProto") -> int:
    """Memory of the array that `to_array` allocates for a list of values, by the declared shape.

    0 if it allocates nothing, or fails.
    """
    kind = numpy_type(tensor.dtype)
    if (
        kind is None
        or len(tensor.tensor_shape.dim) > dtypes.MAX_DIMENSIONS
        or (tensor.tensor_content and not kind.hasobject)
    ):
        return 0
    count = math.prod(max(0, dim.size) for dim in tensor.tensor_shape.dim)
    return count * (STRING_BYTES if kind.hasobject else kind.itemsize)


def to_array(tensor: "TensorProto") -> npt.NDArray[Any]:
    """Array of a TensorProto; strings become an object array of ``bytes``, any byte but 0 a True.

    Read-only if it shares the message's memory. Raises ValueError if the shape and the
    values do not fit, or the type has no array.
    """
    data_type: int = tensor.dtype
    kind = numpy_type(data_type)
    if kind is None:
        raise ValueError(f"no array can hold {data_type_name(tensor.dtype)}")
    if len(tensor.tensor_shape.dim) > dtypes.MAX_DIMENSIONS:  # the product of many sizes would take hours
        dimensions = len(tensor.tensor_shape.dim)
        raise ValueError(f"an array has at most {dtypes.MAX_DIMENSIONS} dimensions, the tensor {dimensions}")
    shape = [dim.size for dim in tensor.tensor_shape.dim]
    if any(size < 0 for size in shape):
        raise ValueError("the tensor's shape is not fully known")
    count = math.prod(shape)
    if not count:
        values = np.empty(0, kind)
    elif data_type == DataType.DT_STRING:
        content = tensor.tensor_content
        strings = _packed_strings(content, count) if content else list(tensor.string_val)[:count]
        values = np.empty(count, object)
        values[:] = strings + [strings[-1] if strings else b""] * (count - len(strings))
    elif tensor.tensor_content and data_type == DataType.DT_BOOL:
        values = np.frombuffer(tensor.tensor_content, np.uint8) != 0
    elif tensor.tensor_content:
        values = np.frombuffer(tensor.tensor_content, kind)
    else:
        values = _listed(tensor, kind, count)
    if values.size != count:
        raise ValueError(f"the tensor holds {values.size} values, its shape needs {count}")
    return values.reshape(shape)


_MORE = 0x80
_LOW = 0x7F
_LONGEST_BITS = 63


def _packed_strings(content: bytes, count: int) -> list[bytes]:
    """Split packed strings: each one's length as a varint, then all of them."""
    lengths: list[int] = []
    value = shift = at = 0
    # PERF: a call for each length takes five times as long.
    for byte in content:
        at += 1
        value |= (byte & _LOW) << shift
        shift += 7
        if byte < _MORE:
            lengths.append(value)
            value = shift = 0
        if len(lengths) == count or shift > _LONGEST_BITS:
            break
    ends = list(itertools.accumulate(lengths, initial=at))
    if len(lengths) < count or ends[-1] != len(content):
        raise ValueError(f"the tensor's strings have {len(content)} bytes, their lengths want {ends[-1]}")
    return [content[start:end] for start, end in itertools.pairwise(ends)]


def _listed(tensor: "TensorProto", kind: np.dtype[Any], count: int) -> npt.NDArray[Any]:
    numbers = getattr(tensor, tensor.DESCRIPTOR.fields_by_number[_LISTS[tensor.dtype]].name)
    if tensor.dtype in _BITS:
        values = np.fromiter(numbers, _INT32).astype(np.uint16).view(kind)
    elif tensor.dtype in _NARROW:
        values = np.fromiter(numbers, _INT32).astype(kind)
    elif pair := _PAIRS.get(tensor.dtype):
        parts = np.fromiter(numbers, pair)
        values = parts[: parts.size // 2 * 2].view(kind)
    else:
        values = np.fromiter(numbers, kind)
    return _filled(values, count)


def _filled(values: npt.NDArray[Any], count: int) -> npt.NDArray[Any]:
    if values.size > count:
        return values[:count]
    if values.size == count:
        return values
    filled = np.zeros(count, values.dtype)
    filled[: values.size] = values
    if values.size:
        filled[values.size :] = values[-1]
    return filled


def to_pieces(array: npt.NDArray[Any], *, as_list: bool = False, data_type: int | None = None) -> list[Piece]:
    """Serialize a TensorProto as pieces to be joined; numbers are not copied until then.

    ``as_list`` writes the ``*_val`` list, for clients that do not know ``tensor_content``; ``data_type``
    is the type of an array of bits, if numpy has no type for it.
    Raises TypeError for an array that no tensor can be made of.
    """
    if data_type is None:
        data_type = data_type_of(array)
    pieces: list[Piece] = [varint_field(DTYPE, data_type), field(SHAPE, shape_bytes(array.shape))]
    if data_type == DataType.DT_STRING:
        pieces += [piece for value in array.ravel() for piece in message_field(STRINGS, [_as_bytes(value)])]
    elif not array.size:
        return pieces
    elif not as_list:
        pieces += message_field(CONTENT, [memory(array)])
    else:
        pieces += _list_pieces(array, data_type)
    return pieces


def to_bytes(array: npt.NDArray[Any], *, as_list: bool = False) -> bytes:
    """Serialize a TensorProto, for ``TensorProto.FromString``."""
    return b"".join(to_pieces(array, as_list=as_list))


def shape_bytes(shape: Iterable[int]) -> bytes:
    """Serialize a TensorShapeProto."""
    return b"".join(field(2, varint_field(1, size) if size else b"") for size in shape)


def _as_bytes(value: object) -> bytes:
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    raise TypeError(f"a string tensor holds bytes or text, not {type(value).__name__}")


def _list_pieces(array: npt.NDArray[Any], data_type: int) -> list[Piece]:
    if data_type in FIXED_LISTS:
        return message_field(FIXED_LISTS[data_type], [memory(array)])
    if data_type in _BITS:
        return message_field(_HALVES, [_varints(np.ascontiguousarray(array).reshape(-1).view(np.uint16))])
    return message_field(_VARINT_LISTS[data_type], [_varints(array)])


def _varints(array: npt.NDArray[Any]) -> bytes:
    """Packed varints of whole numbers; negative ones as ten bytes, by protobuf's rule."""
    if array.min() >= 0 and array.max() < 128:  # noqa: PLR2004
        return array.astype(np.uint8).tobytes()
    return b"".join(map(varint, array.ravel().tolist()))


_QUIET_NAN = 0x7FC0


def to_bits(array: npt.NDArray[Any]) -> npt.NDArray[np.uint16]:
    """Round float32 ``[...]`` to bits ``[...]``: to the nearest, ties to even, as TensorFlow does."""
    values = np.asarray(array, np.float32)
    bits = values.view(np.uint32) if values.ndim else values.reshape(1).view(np.uint32).reshape(())
    # In 64 bits no value overflows into its sign.
    rounded = (bits.astype(np.uint64) + 0x7FFF + (bits >> 16 & 1)) >> 16
    return np.asarray(np.where(np.isnan(values), _QUIET_NAN, rounded).astype(np.uint16))


def from_bits(bits: npt.NDArray[np.uint16]) -> npt.NDArray[np.float32]:
    """Widen bits ``[n]`` to float32 ``[n]``, exactly."""
    return (bits.astype(np.uint32) << 16).view(np.float32)
