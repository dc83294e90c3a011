"""A predict request's JSON to arrays by input name, row by row or column by column.

Every refusal has TF Serving's own text (contract 3.1). Regular lists of numbers take a path that
looks at whole lists at a time; whatever that does not understand is gone through value by value.
"""

from array import array as packed
from collections.abc import Callable, Mapping
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import pybase64

from tfs_proxy.embedded import json_bulk
from tfs_proxy.embedded.errors import Code, ServingError, invalid
from tfs_proxy.embedded.json_parse import parse
from tfs_proxy.embedded.json_text import shown
from tfs_proxy.embedded.servable import Array, Tensor, type_name
from tfs_proxy.embedded.tall import MAX_RANK, TallArray
from tfs_proxy.protos.tensors import DT_STRING, NUMPY_TYPES

Inputs = Mapping[str, Tensor]

_FLOAT = 1
_BOOL = 10
_DECIMALS = {1, 2}
_INT32 = range(-(2**31), 2**31)
_RANGES = {
    3: _INT32,
    5: _INT32,
    6: _INT32,
    4: _INT32,
    9: range(-(2**63), 2**63),
    22: range(2**32),
    23: range(2**64),
}
"""What a JSON number must lie in: 8 and 16 bit types take any 32 bit number, and keep its low bits."""

_KINDS: Mapping[int, frozenset[type]] = {
    **dict.fromkeys(_DECIMALS, frozenset({int, float})),
    **dict.fromkeys(_RANGES, frozenset({int})),
    _BOOL: frozenset({bool}),
    DT_STRING: frozenset({str}),
}
"""What values of a type may be in JSON; bytes besides have a form of their own."""

_INT_TYPES = {
    number: np.int32 if within is _INT32 else NUMPY_TYPES[number] for number, within in _RANGES.items()
}


class PredictCall(NamedTuple):
    """What a request asks for: a signature, its arrays, and whether the answer goes by rows."""

    signature: str
    by_row: bool
    arrays: dict[str, Array]


def decode(body: bytes, inputs_of: Callable[[str], Inputs]) -> PredictCall:
    """A body to a call; ``inputs_of`` gives a signature's inputs ("" is the default one).

    Raises ServingError for malformed JSON, and for whatever does not fit the signature.
    """
    if len(body) >= json_bulk.WORTHWHILE_BYTES:
        found = json_bulk.decode(body, inputs_of)
        if found is not None:
            return PredictCall(*found)
    document = parse(body)
    if not isinstance(document, dict):
        raise invalid(f"JSON Value: {shown(document)} Is not object")
    signature = signature_name(document)
    inputs = inputs_of(signature)
    if not inputs:
        raise invalid(f"Failed to get input map for signature: {signature or 'DEFAULT'}")
    if "instances" in document:
        if "inputs" in document:
            raise invalid(
                f"JSON Value: {shown(document)} Not formatted correctly expecting only one of "
                "'inputs' or 'instances' keys to exist "
            )
        return PredictCall(signature, by_row=True, arrays=_rows(document, inputs))
    if "inputs" in document:
        return PredictCall(signature, by_row=False, arrays=_columns(document["inputs"], inputs))
    raise invalid("Missing 'inputs' or 'instances' key")


def signature_name(document: dict[str, Any]) -> str:
    """The signature that a request names, "" for none.

    Raises ServingError where it is no string.
    """
    name = document.get("signature_name", "")
    if not isinstance(name, str):
        raise invalid(
            f"JSON Value: {shown(document)} not formatted correctly. "
            "'signature_name' key must be a string value."
        )
    return name


def is_base64(value: Any) -> bool:
    """Whether a value is ``{"b64": "…"}`` and nothing else."""
    return isinstance(value, dict) and len(value) == 1 and isinstance(value.get("b64"), str)


def base64_bytes(value: dict[str, str]) -> bytes:
    """The bytes of such a value; padding may be missing. Raises ServingError."""
    text = value["b64"]
    try:
        return _decoded(text)
    except ValueError:
        # White space is rare, and looking for it costs more than decoding.
        spaceless = "".join(text.split())
    try:
        return _decoded(spaceless)
    except ValueError as error:
        raise invalid("Unable to base64 decode") from error


def _decoded(text: str) -> bytes:
    bare = text.rstrip("=.")
    return pybase64.b64decode(bare + "=" * (-len(bare) % 4), validate=True)


def _columns(value: Any, inputs: Inputs) -> dict[str, Array]:
    if isinstance(value, dict) and not is_base64(value):
        for name in inputs:
            if name not in value:
                raise invalid(f"Missing named input: {name} in 'inputs' object.")
        return {name: _array(value[name], tensor.data_type) for name, tensor in inputs.items()}
    if len(inputs) > 1:
        raise invalid(
            "inputs is a plain value/list, but expecting an object as multiple input tensors required "
            "as per tensorinfo_map"
        )
    return {name: _array(value, tensor.data_type) for name, tensor in inputs.items()}


def _rows(document: dict[str, Any], inputs: Inputs) -> dict[str, Array]:
    rows = document["instances"]
    if not isinstance(rows, list):
        raise invalid(f"JSON Value: {shown(document)} Excepting 'instances' to be an list/array")
    if not rows:
        raise invalid(f"JSON Value: {shown(document)} No values in 'instances' array")
    named = isinstance(rows[0], dict) and not is_base64(rows[0])
    if not isinstance(rows[0], dict) and len(inputs) > 1:
        raise invalid(
            "instances is a plain list, but expecting list of objects as multiple input tensors required "
            "as per tensorinfo_map"
        )
    quick = _regular_columns(rows, inputs) if named else _regular_column(rows, inputs)
    return quick if quick is not None else _Rows(inputs).read(rows, named=named)


def _regular_column(rows: list[Any], inputs: Inputs) -> dict[str, Array] | None:
    name = next(iter(inputs))
    array = _regular(rows, inputs[name].data_type)
    return None if array is None else {name: array}


def _regular_columns(rows: list[Any], inputs: Inputs) -> dict[str, Array] | None:
    arrays = {}
    for name, tensor in inputs.items():
        try:
            column = [row[name] for row in rows if len(row) == len(inputs)]
        except (KeyError, TypeError):
            return None
        array = _regular(column, tensor.data_type) if len(column) == len(rows) else None
        if array is None:
            return None
        arrays[name] = array
    return arrays


def _array(value: Any, data_type: int) -> Array:
    array = _regular(value, data_type)
    if array is not None:
        return array
    shape = _shape(value)
    values: list[Any] = []
    _fill(value, 0, shape, data_type, values)
    return _made(values, shape, data_type)


def _regular(value: Any, data_type: int) -> Array | None:
    """The array of equally long lists of numbers, bools or text; None for anything else."""
    flat = value if type(value) is list else [value]
    shape = [len(flat)] if flat is value else []
    while flat and type(flat[0]) is list:
        size = len(flat[0])
        if len(shape) >= MAX_RANK or any(type(each) is not list or len(each) != size for each in flat):
            return None
        shape.append(size)
        flat = list(chain.from_iterable(flat))
    if not _fits(set(map(type, flat)), data_type):
        return None
    if data_type == DT_STRING:
        return _made([text.encode("utf-8", "surrogateescape") for text in flat], shape, data_type)
    if (
        data_type in _RANGES
        and flat
        and not (min(flat) in _RANGES[data_type] and max(flat) in _RANGES[data_type])
    ):
        return None
    return _made(flat, shape, data_type)


def _fits(kinds: set[type], data_type: int) -> bool:
    allowed = _KINDS.get(data_type)
    return allowed is not None and kinds <= allowed


def _made(values: list[Any], shape: list[int], data_type: int) -> Array:
    array = _flat(values, data_type)
    if len(shape) == 1:
        return array
    return TallArray(array, shape) if len(shape) > MAX_RANK else array.reshape(shape)


def _flat(values: list[Any], data_type: int) -> Array:
    if data_type == _FLOAT and values:
        # PERF: the C cast of the array module says nothing of values beyond float32, which are infinite.
        return np.frombuffer(packed("f", values), np.float32)
    if data_type == DT_STRING:
        array = np.empty(len(values), object)
        array[:] = values
        return array
    if data_type in _RANGES:
        return np.array(values, _INT_TYPES[data_type]).astype(NUMPY_TYPES[data_type])
    return np.array(values, NUMPY_TYPES.get(data_type, np.float32))


def _shape(value: Any) -> list[int]:
    shape: list[int] = []
    while isinstance(value, list):
        shape.append(len(value))
        if not value:
            break
        value = value[0]
    return shape


def _fill(value: Any, level: int, shape: list[int], data_type: int, values: list[Any]) -> None:
    """Go through one value, appending to ``values``; an explicit stack holds what is still to come."""
    waiting = [(value, level)]
    while waiting:
        value, level = waiting.pop()
        if not isinstance(value, list):
            if level != len(shape):
                raise invalid(
                    f"JSON Value: {shown(value)} found at incorrect level: {level + 1} in the JSON DOM. "
                    f"Expected at level: {len(shape)}"
                )
            values.append(_leaf(value, data_type))
            continue
        if level >= len(shape):
            raise invalid(f"Encountered list at unexpected level: {level} expected < {len(shape)}")
        if len(value) != shape[level]:
            raise invalid(
                f"Encountered list at unexpected size: {len(value)} at level: {level} "
                f"expected size: {shape[level]}"
            )
        waiting.extend((each, level + 1) for each in reversed(value))


def _leaf(value: Any, data_type: int) -> Any:
    if data_type == DT_STRING and isinstance(value, dict):
        if not is_base64(value):
            raise invalid(f"JSON Value: {shown(value)} not formatted correctly for base64 data")
        return base64_bytes(value)
    if isinstance(value, dict):
        raise _wrong_type(value, data_type)
    if data_type not in _DECIMALS | _RANGES.keys() | {_BOOL, DT_STRING}:
        raise ServingError(
            Code.UNIMPLEMENTED, f"Conversion of JSON Value: {shown(value)} to type: {type_name(data_type)}"
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


class _Rows:
    """Rows read value by value: of each input the first row sets size and shape."""

    def __init__(self, inputs: Inputs) -> None:
        self._inputs = inputs
        self._values: dict[str, list[Any]] = {}
        self._sizes: dict[str, int] = {}
        self._shapes: dict[str, list[int]] = {}

    def read(self, rows: list[Any], *, named: bool) -> dict[str, Array]:
        for index, row in enumerate(rows):
            is_object = isinstance(row, dict) and not is_base64(row)
            if named and not is_object:
                raise invalid(f"Expecting object but got list at item {index} of input list")
            if is_object and not named:
                raise invalid(f"Expecting value/list but got object at item {index} of input list")
            self._read_row(index, row, named=named)
        return {
            name: _made(values, [len(rows), *self._shapes[name]], self._inputs[name].data_type)
            for name, values in self._values.items()
        }

    def _read_row(self, index: int, row: Any, *, named: bool) -> None:
        items = row.items() if named else ((next(iter(self._inputs)), row),)
        for name, value in items:
            try:
                self._add(name, value)
            except ServingError as error:
                where = f"{index} key: {name}" if named else f"{index}"
                raise invalid(
                    f"Failed to process element: {where} of 'instances' list. "
                    f"Error: {error.code.name}: {error.text}"
                ) from error
        if named and row.keys() != self._inputs.keys():
            raise invalid(
                f"Failed to process element: {index} of 'instances' list. JSON object: {shown(row)} "
                f"keys must be equal to: {','.join(sorted(self._inputs))}"
            )

    def _add(self, name: str, value: Any) -> None:
        if name not in self._inputs:
            raise invalid(f"JSON object: does not have named input: {name}")
        shape = _shape(value)
        values = self._values.setdefault(name, [])
        before = len(values)
        _fill(value, 0, shape, self._inputs[name].data_type, values)
        size = len(values) - before
        if name not in self._sizes:
            self._sizes[name], self._shapes[name] = size, shape
        elif self._sizes[name] != size:
            raise invalid(f"Expecting tensor size: {self._sizes[name]} but got: {size}")
        elif self._shapes[name] != shape:
            raise invalid(f"Expecting shape {_bracketed(self._shapes[name])} but got: {_bracketed(shape)}")


def _bracketed(shape: list[int]) -> str:
    return f"[{','.join(map(str, shape))}]"
