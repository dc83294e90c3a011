"""TensorFlow's data types and shapes on the wire, without numpy, whose import would slow down the start."""

from enum import IntEnum

from tfs_proxy.wire.protobuf_reader import numbers, views

_REFERENCE = 100
"""Added to the number of a type for a reference to it."""


class DataType(IntEnum):
    """tensorflow.DataType, as in TensorProto.dtype and TensorInfo.dtype."""

    DT_INVALID = 0
    DT_FLOAT = 1
    DT_DOUBLE = 2
    DT_INT32 = 3
    DT_UINT8 = 4
    DT_INT16 = 5
    DT_INT8 = 6
    DT_STRING = 7
    DT_COMPLEX64 = 8
    DT_INT64 = 9
    DT_BOOL = 10
    DT_QINT8 = 11
    DT_QUINT8 = 12
    DT_QINT32 = 13
    DT_BFLOAT16 = 14
    DT_QINT16 = 15
    DT_QUINT16 = 16
    DT_UINT16 = 17
    DT_COMPLEX128 = 18
    DT_HALF = 19
    DT_RESOURCE = 20
    DT_VARIANT = 21
    DT_UINT32 = 22
    DT_UINT64 = 23
    DT_FLOAT8_E5M2 = 24
    DT_FLOAT8_E4M3FN = 25
    DT_FLOAT8_E4M3FNUZ = 26
    DT_FLOAT8_E4M3B11FNUZ = 27
    DT_FLOAT8_E5M2FNUZ = 28
    DT_INT4 = 29
    DT_UINT4 = 30
    DT_INT2 = 31
    DT_UINT2 = 32
    DT_FLOAT4_E2M1FN = 33


_NAMES = {
    **{data_type.value: data_type.name for data_type in DataType},
    **{data_type + _REFERENCE: f"{data_type.name}_REF" for data_type in DataType if data_type},
}


def data_type_name(number: int) -> str:
    """TensorFlow's name of a type (``DT_FLOAT``, ``DT_FLOAT_REF``); ``DT_`` and the number if unknown."""
    return _NAMES.get(number) or f"DT_{number}"


_DIM, _UNKNOWN_RANK = 2, 3
_SIZE = 1


def shape_of(message: memoryview | None) -> tuple[int | None, ...] | None:
    """The sizes of a serialized TensorShapeProto; a size is None if unknown, the result if the rank is.

    No message means an unknown rank; a scalar's message has no dimensions. Raises MalformedProtobuf.
    """
    if message is None or numbers(message).get(_UNKNOWN_RANK):
        return None
    sizes = [numbers(dimension).get(_SIZE, 0) for number, dimension in views(message) if number == _DIM]
    return tuple(None if size < 0 else size for size in sizes)
