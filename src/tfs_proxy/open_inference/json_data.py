"""A tensor's ``data`` in the protocol's JSON to an array: lists of any depth, row by row."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tfs_proxy.batch import BYTES
from tfs_proxy.errors import BadInput, from_client
from tfs_proxy.open_inference.datatypes import Datatype
from tfs_proxy.serving_json.nesting import Irregular, flattened
from tfs_proxy.serving_json.simd import JSONArray, JSONObject, numbers_of

_EXPECTED: Mapping[str, tuple[frozenset[type], str]] = {
    "f": (frozenset({int, float}), "a number"),
    "i": (frozenset({int}), "a whole number"),
    "u": (frozenset({int}), "a whole number"),
    "b": (frozenset({bool}), "true or false"),
    "O": (frozenset({str}), "a string"),
}
"""By the kind of an array's dtype: the Python types of a value, and the value in words."""

_SHOWN_CHARACTERS = 40


def array_of(
    data: Any, datatype: Datatype, shape: Sequence[int], subject: str, count_objects: Callable[[], None]
) -> npt.NDArray[Any]:
    """The array ``shape`` of a list that simdjson has parsed, nested or flat; a plain value for no dimension.

    ``count_objects`` is called before values become Python objects. Raises BadInput, beginning with
    ``subject``, for values of another type, numbers that the datatype can't hold, and more or fewer of them
    than the shape asks for.
    """
    if not datatype.has_json:
        raise BadInput(
            f"{subject} is {datatype.name}, which JSON does not carry: send it as binary data "
            "(binary_data_size, Inference-Header-Content-Length)."
        )
    if not shape and isinstance(data, bool | int | float | str):
        return _one_by_one([data], datatype, subject).reshape(())
    if not isinstance(data, JSONArray):
        raise BadInput(f'{subject} needs a list as "data".')
    values = _numbers(data, datatype) if datatype.array.kind in "fiu" and len(data) else None
    if values is None:
        count_objects()
        values = _one_by_one(data.as_list(), datatype, subject)
    if values.size != math.prod(shape):
        raise BadInput(
            f"{subject} has {values.size} values, but the shape {list(shape)} takes {math.prod(shape)}."
        )
    return values.reshape(shape)


def _numbers(data: Any, datatype: Datatype) -> npt.NDArray[Any] | None:
    """PERF: 0.3 ms for 150,000 numbers; None if they are not all of them what is expected."""
    try:
        numbers = numbers_of(data, datatype.array)
    except (ValueError, TypeError):
        return None
    with np.errstate(over="ignore"):
        return None if numbers is None else numbers.astype(datatype.array, copy=False)


def _one_by_one(data: list[Any], datatype: Datatype, subject: str) -> npt.NDArray[Any]:
    """Strings, booleans, and numbers of which one is wrong."""
    try:
        leaves, _, types = flattened(data)
    except Irregular as error:
        raise BadInput(f"{subject} has {error.reason.value}.") from None
    expected, in_words = _EXPECTED[datatype.array.kind]
    if not types <= expected:
        position = next(number for number, leaf in enumerate(leaves) if type(leaf) not in expected)
        shown = f"{subject}: value {position + 1} is {_shown(leaves[position])}"
        raise BadInput(f"{shown}, but {datatype.name} takes {in_words}.")
    if datatype.array == BYTES:
        return _strings(leaves, subject)
    if datatype.array.kind in "iu":
        _check_range(leaves, datatype, subject)
    return np.array(leaves, datatype.array)


def _strings(leaves: Sequence[str], subject: str) -> npt.NDArray[Any]:
    array = np.empty(len(leaves), BYTES)
    try:
        for number, leaf in enumerate(leaves):
            array[number] = leaf.encode()
    except UnicodeEncodeError:
        raise BadInput(f"{subject}: value {number + 1} has half a surrogate pair.") from None
    return array


def _check_range(leaves: Sequence[int], datatype: Datatype, subject: str) -> None:
    limits = np.iinfo(datatype.array)
    for number, leaf in enumerate(leaves, 1):
        if not limits.min <= leaf <= limits.max:
            raise BadInput(f"{subject}: value {number} is {_shown(leaf)}, which {datatype.name} can't hold.")


def _shown(value: Any) -> str:
    if isinstance(value, (JSONArray, JSONObject, list, dict)):
        return "a list or an object"
    text = {True: "true", False: "false", None: "null"}.get(value) if isinstance(value, bool | None) else None
    return from_client((text or repr(value))[:_SHOWN_CHARACTERS])
