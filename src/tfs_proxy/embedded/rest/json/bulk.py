"""The fast way through large bodies of numbers: parsed and converted without a Python object each.

simdjson turns a list of numbers of any depth into one flat buffer. That the lists are regular is
seen from the body with everything but its structure taken out, which must read exactly as that of
a tensor of this shape.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tfs_proxy.embedded.core.servable import Array, Tensor
from tfs_proxy.embedded.rest.json import pieces as json_pieces
from tfs_proxy.memory import MEGABYTE, RESERVED_FROM_BYTES, MemoryBudget
from tfs_proxy.serving_json import simd
from tfs_proxy.wire.data_types import DataType

WORTHWHILE_BYTES = 4096
"""From this size on a body is worth the attempt."""

_NUMBER_BYTES = 48
"""A number in simdjson's memory, and in the arrays that it comes out as."""
_ROW_BYTES = 1000
"""A list or an object of several, as Python sees it."""
_MOST_BYTES = 100 * MEGABYTE
_STRUCTURE = b'[]{},:"'
_VALUES = bytes(code for code in range(256) if code not in _STRUCTURE)

_TYPES: dict[int, np.dtype[Any]] = {
    DataType.DT_FLOAT: np.dtype(np.float32),
    DataType.DT_DOUBLE: np.dtype(np.float64),
    DataType.DT_INT32: np.dtype(np.int32),
    DataType.DT_INT64: np.dtype(np.int64),
}
"""The types read here, by number: integers of other widths are wrapped, which the exact reader does."""

Found = json_pieces.Found


class _Unfit(Exception):
    """The body is not of the kind that this module reads; the exact reader has a look at it."""


def decode(
    body: bytes, inputs_of: Callable[[str], Mapping[str, Tensor]], budget: MemoryBudget
) -> Found | None:
    """Signature name, whether by row, and arrays by input; None for what has to be read value by value.

    Raises ServingError only if ``inputs_of`` does, and what the budget does.
    """
    if b"\\" in body:
        return None
    if len(body) >= RESERVED_FROM_BYTES:
        decoded = json_pieces.decode(body, inputs_of, _TYPES.keys(), budget)
        if decoded is not None or not _is_light(body, budget):
            return decoded
    try:
        document = simd.parse(body)
        if not isinstance(document, simd.JSONObject):
            return None
        return _decode(body, document, inputs_of)
    except (_Unfit, ValueError, TypeError):
        return None


def _is_light(body: bytes, budget: MemoryBudget) -> bool:
    """Whether simdjson may have the memory for the whole body, which is taken then."""
    objects = body.count(b"{") + body.count(b"[")
    size_bytes = len(body) + body.count(b",") * _NUMBER_BYTES + objects * _ROW_BYTES
    if size_bytes > _MOST_BYTES:
        return False
    budget.reserve(size_bytes)
    return True


def _decode(body: bytes, document: Any, inputs_of: Callable[[str], Mapping[str, Tensor]]) -> Found:
    keys = list(document.keys())
    by_row = "instances" in keys
    wanted = "instances" if by_row else "inputs"
    signature = document.get("signature_name") or ""
    if sorted({*keys, "signature_name"}) != sorted(["signature_name", wanted]) or len(set(keys)) != len(keys):
        raise _Unfit
    if not isinstance(signature, str):
        raise _Unfit
    inputs = inputs_of(signature)
    columns, structure = _columns(document[wanted], inputs, by_row=by_row)
    if any(mark in name for name in (signature, *inputs) for mark in _STRUCTURE.decode()):
        raise _Unfit
    parts = [b'"":' + (b'""' if key == "signature_name" else structure) for key in keys]
    if body.translate(None, _VALUES) != b"{%b}" % b",".join(parts):
        raise _Unfit
    return signature, by_row, {name: _joined(column, inputs[name]) for name, column in columns.items()}


Column = tuple[tuple[int, ...], list[Any]]
"""An input's shape, and the JSON arrays whose values one after the other fill it."""


def _columns(value: Any, inputs: Mapping[str, Tensor], *, by_row: bool) -> tuple[dict[str, Column], bytes]:
    """Each input's column, with the structure that the whole value must have."""
    if isinstance(value, simd.JSONArray) and len(value) and isinstance(value[0], simd.JSONObject) and by_row:
        return _row_columns(list(value), inputs)
    if isinstance(value, simd.JSONObject) and not by_row:
        columns, structure = _row_columns([value], inputs)
        return {name: (shape[1:], arrays) for name, (shape, arrays) in columns.items()}, structure[1:-1]
    if len(inputs) != 1:
        raise _Unfit
    shape = _shape(value)
    return {name: (shape, [value]) for name in inputs}, simd.skeleton(shape)


def _row_columns(rows: list[Any], inputs: Mapping[str, Tensor]) -> tuple[dict[str, Column], bytes]:
    columns: dict[str, list[Any]] = {name: [] for name in inputs}
    structures = []
    for row in rows:
        if not isinstance(row, simd.JSONObject):
            raise _Unfit
        keys = list(row.keys())
        if sorted(keys) != sorted(inputs):
            raise _Unfit
        for key in keys:
            columns[key].append(row[key])
        members = (b'"":' + simd.skeleton(_shape(row[key])) for key in keys)
        structures.append(b"{%b}" % b",".join(members))
    shaped: dict[str, Column] = {}
    for name, arrays in columns.items():
        shapes = {_shape(array) for array in arrays}
        if len(shapes) != 1:
            raise _Unfit
        shaped[name] = ((len(rows), *shapes.pop()), arrays)
    return shaped, b"[%b]" % b",".join(structures)


def _joined(column: Column, tensor: Tensor) -> Array:
    shape, arrays = column
    flat = [_flat(array, tensor.data_type) for array in arrays]
    return (flat[0] if len(flat) == 1 else np.concatenate(flat)).reshape(shape)


def _flat(array: Any, data_type: int) -> Array:
    dtype = _TYPES.get(data_type)
    numbers = None if dtype is None else simd.numbers_of(array, dtype)
    if numbers is None:
        raise _Unfit
    with np.errstate(over="ignore"):
        return numbers.astype(dtype, copy=False)


def _shape(value: Any) -> tuple[int, ...]:
    shape = simd.shape_of(value)
    if shape is None:
        raise _Unfit
    return shape
