"""TensorFlow's data types and shapes on the wire, without numpy, whose import would slow down the start."""

from enum import IntEnum
from itertools import islice

from tfs_proxy.wire.protobuf_reader import MalformedProtobuf, numbers, read_fields, views

_REFERENCE = 100
"""Added to the number of a type for a reference to it."""


DataType = IntEnum(
    "DataType",
    "DT_INVALID DT_FLOAT DT_DOUBLE DT_INT32 DT_UINT8 DT_INT16 DT_INT8 DT_STRING DT_COMPLEX64 DT_INT64 "
    "DT_BOOL DT_QINT8 DT_QUINT8 DT_QINT32 DT_BFLOAT16 DT_QINT16 DT_QUINT16 DT_UINT16 DT_COMPLEX128 "
    "DT_HALF DT_RESOURCE DT_VARIANT DT_UINT32 DT_UINT64 DT_FLOAT8_E5M2 DT_FLOAT8_E4M3FN "
    "DT_FLOAT8_E4M3FNUZ DT_FLOAT8_E4M3B11FNUZ DT_FLOAT8_E5M2FNUZ DT_INT4 DT_UINT4 DT_INT2 DT_UINT2 "
    "DT_FLOAT4_E2M1FN",
    start=0,
)
"""tensorflow.DataType, as in TensorProto.dtype and TensorInfo.dtype, in the order of the numbers."""

_NAMES = {
    **{data_type.value: data_type.name for data_type in DataType},
    **{data_type + _REFERENCE: f"{data_type.name}_REF" for data_type in DataType if data_type},
}


def data_type_name(number: int) -> str:
    """TensorFlow's name of a type (``DT_FLOAT``, ``DT_FLOAT_REF``); ``DT_`` and the number if unknown."""
    return _NAMES.get(number) or f"DT_{number}"


MAX_RANK = 254
"""Most dimensions of TensorFlow's tensors."""

_DIM = 2
_UNKNOWN_RANK = 3
_SIZE = 1


def shape_of(message: memoryview | None) -> tuple[int | None, ...] | None:
    """The sizes of a serialized TensorShapeProto; a size is None if unknown, the result if the rank is.

    No message means an unknown rank; a scalar's message has no dimensions. Raises MalformedProtobuf, before
    it reads more dimensions than there can be.
    """
    if message is not None and next(islice(read_fields(message), MAX_RANK + 1, None), None):
        raise MalformedProtobuf(f"a shape has more than {MAX_RANK} dimensions")
    if message is None or numbers(message).get(_UNKNOWN_RANK):
        return None
    sizes = [numbers(dimension).get(_SIZE, 0) for number, dimension in views(message) if number == _DIM]
    return tuple(None if size < 0 else size for size in sizes)
