"""One value of a request's JSON to an array of a type that TensorFlow has.

Regular lists of numbers take a path that looks at whole lists at a time; whatever that does not
understand is gone through value by value, and refused with TF Serving's own text.
"""

from array import array as packed
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tfs_proxy.embedded.core.servable import Array, Tensor, type_name
from tfs_proxy.embedded.errors import ServingError, invalid, too_many_dimensions
from tfs_proxy.embedded.rest.json.text import shown
from tfs_proxy.protos.tensors import numpy_type
from tfs_proxy.serving_json.nesting import Irregular, flattened
from tfs_proxy.serving_json.text import base64_bytes, is_base64
from tfs_proxy.wire.data_types import DataType
from tfs_proxy.wire.dtypes import MAX_DIMENSIONS, NUMPY_TYPES
from tfs_proxy.wire.grpc_codes import GrpcCode

_DECIMALS = {DataType.DT_FLOAT, DataType.DT_DOUBLE}
_INT32 = range(-(2**31), 2**31)
_RANGES: Mapping[int, range] = {
    DataType.DT_INT32: _INT32,
    DataType.DT_INT16: _INT32,
    DataType.DT_INT8: _INT32,
    DataType.DT_UINT8: _INT32,
    DataType.DT_INT64: range(-(2**63), 2**63),
    DataType.DT_UINT32: range(2**32),
    DataType.DT_UINT64: range(2**64),
}
"""What a JSON number must lie in: 8 and 16 bit types take any 32 bit number, and keep its low bits."""

_KINDS: Mapping[int, frozenset[type]] = {
    **dict.fromkeys(_DECIMALS, frozenset({int, float})),
    **dict.fromkeys(_RANGES, frozenset({int})),
    DataType.DT_BOOL: frozenset({bool}),
    DataType.DT_STRING: frozenset({str}),
}
"""What values of a type may be in JSON; bytes besides have a form of their own."""

_INT_TYPES = {
    number: np.int32 if within is _INT32 else NUMPY_TYPES[number] for number, within in _RANGES.items()
}


def bytes_of(value: dict[str, str]) -> bytes:
    """The bytes of a base64 value. Raises ServingError."""
    try:
        return base64_bytes(value)
    except ValueError as error:
        raise invalid("Unable to base64 decode") from error


def array_of(value: Any, tensor: Tensor) -> Array:
    """The array of a value with lists in lists, as deep as they go. Raises ServingError."""
    array = regular_array(value, tensor.data_type)
    if array is not None:
        return array
    shape = shape_of(value)
    values: list[Any] = []
    fill(value, 0, shape, tensor.data_type, values)
    return made(values, shape, tensor)


def regular_array(value: Any, data_type: int) -> Array | None:
    """The array of equally long lists of numbers, bools or text; None for anything else."""
    try:
        flat, shape, types = flattened(value if type(value) is list else [value])
    except Irregular:
        return None
    if not _fits(types, data_type):
        return None
    if type(value) is not list:
        shape = []
    if data_type == DataType.DT_STRING:
        return _flat([text.encode("utf-8", "surrogateescape") for text in flat], data_type).reshape(shape)
    if (
        data_type in _RANGES
        and flat
        and not (min(flat) in _RANGES[data_type] and max(flat) in _RANGES[data_type])
    ):
        return None
    return _flat(flat, data_type).reshape(shape)


def _fits(kinds: set[type], data_type: int) -> bool:
    allowed = _KINDS.get(data_type)
    return allowed is not None and kinds <= allowed


def made(values: list[Any], shape: list[int], tensor: Tensor) -> Array:
    """The array of this shape; ``values`` are in the order of memory, and right for the tensor's type.

    Raises ServingError for more dimensions than numpy has.
    """
    if len(shape) > MAX_DIMENSIONS:
        raise too_many_dimensions(tensor.alias, len(shape))
    return _flat(values, tensor.data_type).reshape(shape)


def _flat(values: Sequence[Any], data_type: int) -> Array:
    if data_type == DataType.DT_FLOAT and values:
        # PERF: the C cast of the array module says nothing of values beyond float32, which are infinite.
        return np.frombuffer(packed("f", values), np.float32)
    if data_type == DataType.DT_STRING:
        array = np.empty(len(values), object)
        array[:] = values
        return array
    if data_type in _RANGES:
        return np.array(values, _INT_TYPES[data_type]).astype(NUMPY_TYPES[data_type])
    kind = numpy_type(data_type)
    return np.array(values, np.float32 if kind is None else kind)


def shape_of(value: Any) -> list[int]:
    """The shape that the first value of each list has; the rest is `fill`'s business."""
    shape: list[int] = []
    while isinstance(value, list):
        shape.append(len(value))
        if not value:
            break
        value = value[0]
    return shape


def fill(value: Any, level: int, shape: list[int], data_type: int, values: list[Any]) -> None:
    """Go through one value, appending to ``values``; a stack of our own holds the lists that are open."""
    open_ = [iter((value,))]
    while open_:
        at = level + len(open_) - 1
        for element in open_[-1]:
            if isinstance(element, list):
                _check_list(element, at, shape)
                open_.append(iter(element))
                break
            if at != len(shape):
                raise invalid(
                    f"JSON Value: {shown(element)} found at incorrect level: {at + 1} in the JSON DOM. "
                    f"Expected at level: {len(shape)}"
                )
            values.append(_leaf(element, data_type))
        else:
            open_.pop()


def _check_list(elements: list[Any], level: int, shape: list[int]) -> None:
    """Raises ServingError for a list at a level, or of a size, that the shape does not have."""
    if level >= len(shape):
        raise invalid(f"Encountered list at unexpected level: {level} expected < {len(shape)}")
    if len(elements) != shape[level]:
        raise invalid(
            f"Encountered list at unexpected size: {len(elements)} at level: {level} "
            f"expected size: {shape[level]}"
        )


def _leaf(value: Any, data_type: int) -> Any:
    if data_type == DataType.DT_STRING and isinstance(value, dict):
        if not is_base64(value):
            raise invalid(f"JSON Value: {shown(value)} not formatted correctly for base64 data")
        return bytes_of(value)
    if isinstance(value, dict):
        raise _wrong_type(value, data_type)
    if data_type not in _KINDS:
        raise ServingError(
            GrpcCode.UNIMPLEMENTED,
            f"Conversion of JSON Value: {shown(value)} to type: {type_name(data_type)}",
        )
    if not _fits({type(value)}, data_type) or (data_type in _RANGES and value not in _RANGES[data_type]):
        raise _wrong_type(value, data_type)
    return value.encode("utf-8", "surrogateescape") if isinstance(value, str) else value


def _wrong_type(value: Any, data_type: int) -> ServingError:
    return invalid(
        f"JSON Value: {shown(value)} Type: {json_type(value)} is not of expected type: {type_name(data_type)}"
    )


def json_type(value: Any) -> str:
    """What a JSON value is, as error texts name it."""
    if isinstance(value, bool):
        return str(value)
    kinds = {dict: "Object", list: "Array", str: "String", type(None): "Null"}
    return kinds.get(type(value), "Number")
