"""Typed arrays by input of JSON records: the last step of every text format.

The strictness is TF Serving's own, with the record's number in each error.
"""

import json
from collections.abc import Mapping, Sequence
from enum import Enum
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from tfs_proxy.data.serving_json.documents import base64_bytes, is_base64
from tfs_proxy.values.batch import BYTES, Batch
from tfs_proxy.values.errors import BadInput, WrongType, from_client
from tfs_proxy.values.signature import Signature, TensorSpec
from tfs_proxy.wire.dtypes import MAX_DIMENSIONS, Kind, dtype_of

_SHOWN_CHARACTERS = 40
_SERVING_HINT = (
    " TensorFlow Serving's own form has to be the only document of its body, or application/jsonlines."
)
_ALLOWED: Mapping[Kind, frozenset[type]] = {
    Kind.FLOAT: frozenset({float, int}),
    Kind.INTEGER: frozenset({int}),
    Kind.BOOL: frozenset({bool}),
    Kind.STRING: frozenset({str, dict, bytes}),
}
_JSON_NAMES: Mapping[type, str] = {
    str: "a string",
    dict: "an object",
    list: "a list",
    bool: "a boolean",
    type(None): "no value",
    float: "a number",
    int: "a number",
}


class Irregularity(Enum):
    """Reasons why lists in lists are not a tensor."""

    MIXED = "lists and plain values side by side"
    RAGGED = "lists of different lengths side by side"
    DEEP = "more levels than an array has dimensions"


class Irregular(ValueError):
    """Lists that are not a tensor; ``elements`` are all of the level at which that shows, in order."""

    def __init__(self, reason: Irregularity, elements: Sequence[Any]) -> None:
        super().__init__(reason.value)
        self.reason = reason
        self.elements = elements


def flattened(values: Sequence[Any]) -> tuple[Sequence[Any], list[int], set[type]]:
    """Leaves of lists in lists in order, their shape, and the types among them.

    Raises Irregular.
    """
    # Level by level in C (map, chain), 5 ms for 150,000 numbers three levels deep.
    level = values
    shape = [len(values)]
    while True:
        types = set(map(type, level))
        if list not in types:
            return level, shape, types
        if len(types) > 1:
            raise Irregular(Irregularity.MIXED, level)
        sizes = set(map(len, level))
        if len(sizes) > 1:
            raise Irregular(Irregularity.RAGGED, level)
        if len(shape) == MAX_DIMENSIONS:
            raise Irregular(Irregularity.DEEP, level)
        shape.append(sizes.pop())
        level = list(chain.from_iterable(level))


def batch_of(records: Sequence[Any], signature: Signature, *, strict: bool = False) -> Batch:
    """Make arrays by input name of JSON records: objects by input name, or bare values, `column` by `column`.

    Raises BadInput naming record, input and value, also if bare values meet a signature of
    several inputs, or if names are missing or unknown.
    """
    if not records:
        raise BadInput("The body holds no records.")
    by_name = [type(record) is dict and not is_base64(record) for record in records]
    if any(by_name):
        if not all(by_name):
            odd = by_name.index(not by_name[0])
            what = "an object" if by_name[odd] else "not an object"
            raise BadInput(
                f"Record {odd + 1} is {what}, unlike record 1: all or none must name their inputs.", (odd,)
            )
        expected = signature.inputs.keys()
        if any(record.keys() != expected for record in records):
            records = [signature.by_alias(record) for record in records]
        for number, record in enumerate(records, 1):
            if record.keys() == expected:
                continue
            for name in (name for name in record if name not in expected):
                raise BadInput(
                    f"Record {number} names {_shown(name)}, which is not an input of the model "
                    f"({_names(signature)}).{_SERVING_HINT if name in {'instances', 'inputs'} else ''}",
                    (number - 1, name),
                )
            missing = sorted(expected - record.keys())
            named = ", ".join(f'"{name}"' for name in missing)
            raise BadInput(
                f"Record {number} has no {named}; the model's inputs are {_names(signature)}.",
                (number - 1, missing[0]),
            )
        return Batch(
            {
                name: column([record[name] for record in records], spec, strict=strict)
                for name, spec in signature.inputs.items()
            },
            len(records),
        )
    if len(signature.inputs) != 1:
        raise BadInput(
            f"The model takes {len(signature.inputs)} inputs ({_names(signature)}): "
            "send each record as an object that names them."
        )
    ((name, spec),) = signature.inputs.items()
    return Batch({name: column(records, spec, strict=strict)}, len(records))


def column(values: Sequence[Any], spec: TensorSpec, *, strict: bool = False) -> npt.NDArray[Any]:
    """Make an array of the signature's dtype of all records' values of one input: ``[records, ...]``.

    The shape is the data's own: the graph decides if it fits, as in TF Serving. Where the
    signature has lists of one, some records may be the bare values. Whole numbers may be written as ``1.0``
    or ``1e3``, but not if it is ``strict``, as TF Serving is. Raises BadInput for ragged values and for
    values that the dtype does not take.
    """
    kind, dtype = dtype_of(spec)
    try:
        flat, shape, types = flattened(values)
    except Irregular as error:
        if error.elements is values and error.reason is Irregularity.MIXED and (spec.shape or ())[1:] == (1,):
            boxed = [value if type(value) is list else [value] for value in values]
            return column(boxed, spec, strict=strict)
        raise _irregular(error, len(values), spec) from None
    given = flat
    if kind is Kind.INTEGER and float in types and not strict:
        flat = whole_numbers(flat)
        types = set(map(type, flat))
    if not types <= _ALLOWED[kind]:
        odd = next(i for i, value in enumerate(flat) if type(value) not in _ALLOWED[kind])
        what = _JSON_NAMES.get(type(flat[odd]), "not a JSON value")
        if type(flat[odd]) is float and kind is Kind.INTEGER:
            what = "written with a point or an exponent" if flat[odd].is_integer() else "not a whole number"
        text = f"{_shown(flat[odd])} is {what}, but {spec.dtype} takes {kind.value}"
        raise _misplaced(text, odd, len(flat), len(values), spec, WrongType)
    if kind is Kind.STRING:
        array = np.empty(len(flat), BYTES)
        for index, value in enumerate(flat):
            try:
                array[index] = _bytes(value)
            except ValueError as error:
                text = f"{_shown(value)} {error}"
                raise _misplaced(text, index, len(flat), len(values), spec) from None
        return array.reshape(shape)
    return _numbers(flat, given, len(values), spec, dtype).reshape(shape)


def whole_numbers(leaves: Sequence[Any]) -> list[Any]:
    """Convert floats that are whole numbers; all else stays."""
    return [int(leaf) if type(leaf) is float and leaf.is_integer() else leaf for leaf in leaves]


def _names(signature: Signature) -> str:
    return ", ".join(sorted(signature.inputs)) or "none"


def _misplaced(
    text: str, index: int, size: int, records: int, spec: TensorSpec, kind: type[BadInput] = BadInput
) -> BadInput:
    """Error about the value at ``index`` of ``size`` leaves."""
    record = index * records // size
    return kind(f'Record {record + 1}, input "{spec.name}": {text}.', (record, spec.name))


def _irregular(error: Irregular, records: int, spec: TensorSpec) -> BadInput:
    level = error.elements
    if error.reason is Irregularity.DEEP:
        return BadInput(f'Input "{spec.name}" nests deeper than {MAX_DIMENSIONS} levels.', (spec.name,))
    if error.reason is Irregularity.MIXED:
        first = type(level[0]) is list
        odd = next(i for i, value in enumerate(level) if (type(value) is list) != first)
        what = f"{_shown(level[odd])} is where others have {'lists' if first else 'plain values'}"
    else:
        usual = len(level[0])
        odd = next(i for i, value in enumerate(level) if len(value) != usual)
        what = f"a list of {len(level[odd])} values where the first has {usual}"
    return _misplaced(what, odd, len(level), records, spec)


def _numbers(
    flat: Sequence[Any], given: Sequence[Any], records: int, spec: TensorSpec, dtype: np.dtype[Any]
) -> npt.NDArray[Any]:
    """Make an array of numbers; errors show them as they were ``given``."""
    try:
        # NOTE: 1e39 becomes Infinity in a float32, as TF Serving has it (recorded).
        with np.errstate(over="ignore"):
            return np.array(flat, dtype)
    except OverflowError:
        pass
    for index, value in enumerate(flat):
        try:
            np.array(value, dtype)
        except OverflowError:
            text = f"{_shown(given[index])} is out of the range of {spec.dtype}"
            raise _misplaced(text, index, len(flat), records, spec) from None
    raise BadInput(f'Input "{spec.name}" has a number out of the range of {spec.dtype}.', (spec.name,))


def _bytes(value: Any) -> bytes:
    if type(value) is bytes:
        return value
    if type(value) is str:
        # NOTE: only a model server's answer can hold escapes here: bytes of an output that are not UTF-8.
        return value.encode("utf-8", "surrogateescape")
    if not is_base64(value):
        raise ValueError('is an object, but a string or {"b64": ...} is needed')
    try:
        return base64_bytes(value)
    except ValueError:
        raise ValueError("is not base64") from None


def _shown(value: Any) -> str:
    text = json.dumps(value, default=repr)
    return from_client(text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}...")
