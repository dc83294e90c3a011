"""Conversion of JSON, CSV and npy without a signature: the default input_fn and output_fn of a script model.

The rules are those of AWS's toolkits (docs/reference/sagemaker.md), with two exceptions: an npy body is
never unpickled, and CSV is always ``[rows, columns]``, even if it has one row.
"""

import json
from itertools import islice
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import orjson

from tfs_proxy.data.formats.csv_records import csv_dialect, csv_rows
from tfs_proxy.data.formats.npy import write_npy
from tfs_proxy.data.formats.outputs import csv_of_outputs, csv_of_values
from tfs_proxy.data.serving_json.documents import BYTE_ORDER_MARK, documents, dumps, strings, whole
from tfs_proxy.data.serving_json.numbers import csv_array
from tfs_proxy.values.batch import BYTES
from tfs_proxy.values.errors import BadInput
from tfs_proxy.values.memory import STRING_BYTES, TEXT_NUMBER_BYTES, MemoryBudget
from tfs_proxy.values.signature import TensorSpec
from tfs_proxy.wire.media_types import MediaType, bare

_DOUBLES = TensorSpec("", "DT_DOUBLE", None)
_NUMBERS = "biuf"
_WIDEST_BYTES = 8


def array_of_json(body: bytes, _: MediaType, budget: MemoryBudget) -> npt.NDArray[Any]:
    """Read one document of nested lists; raises BadInput."""
    values = documents(body, budget)
    if len(values) != 1:
        raise BadInput(f"The body holds {len(values)} JSON documents: send one.")
    try:
        return np.array(values[0])
    except ValueError as error:
        raise BadInput(f"The body is not an array: {error}.") from None


def array_of_csv(body: bytes, content_type: MediaType, budget: MemoryBudget) -> npt.NDArray[Any]:
    """Read ``[rows, columns]``: float64 if cells are numbers or empty (NaN), else text. Raises BadInput."""
    dialect = csv_dialect(content_type.parameters)
    text = body.removeprefix(BYTE_ORDER_MARK)
    budget.take_table(text, dialect.delimiter.encode(), TEXT_NUMBER_BYTES)
    numbers = None if dialect.header else csv_array(text, _DOUBLES, dialect.delimiter)
    if numbers is not None:
        return numbers
    budget.take_table(text, dialect.delimiter.encode(), STRING_BYTES)
    rows = list(islice(csv_rows(text, dialect.delimiter), int(bool(dialect.header)), None))
    if not rows:
        raise BadInput("The body has no records.")
    for number, row in enumerate(rows, start=1):
        if len(row) != len(rows[0]):
            raise BadInput(
                f"Row {number} has {len(row)} columns, but row 1 has {len(rows[0])}.", (number - 1,)
            )
    try:
        return np.array([[float(cell) if cell.strip() else np.nan for cell in row] for row in rows])
    except ValueError:
        return np.array(rows)


def plain(value: Any) -> Any:
    """Convert sparse matrices and data frames to arrays: numpy alone would wrap them whole."""
    for name in ("toarray", "to_numpy"):
        if hasattr(value, name):
            return getattr(value, name)()
    return value


def json_of_array(value: Any) -> bytes:
    """Write an array or JSON's kinds of values; raises TypeError for others."""
    if _has_numbers(value):
        return dumps(whole(value, as_base64=False))
    return json.dumps(value, default=_listed).encode()


def json_of_object(value: Any) -> bytes:
    """Write objects of declared classes, dicts, lists and plain values, and numpy's values in them.

    NaN is null; bytes are text, or base64 in an object. Raises TypeError for anything else.
    """
    return orjson.dumps(value, _member, orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS)


def sent_body(body: object, content_type: str | None) -> bytes:
    """Bytes of a request: bytes and text as they are, anything else as JSON.

    Raises TypeError if JSON can't carry it, or is not what ``content_type`` says.
    """
    if isinstance(body, str):
        return body.encode()
    if isinstance(body, (bytes, bytearray, memoryview)):
        return bytes(body)
    if content_type is not None and not bare(content_type).endswith("json"):
        raise TypeError(f"a body of type {type(body).__name__} is sent as JSON, and not as {content_type}")
    return json_of_object(body)


def _member(value: Any) -> Any:
    """Convert a value that orjson does not know."""
    if isinstance(value, msgspec.Struct):
        return orjson.Fragment(msgspec.json.encode(value, enc_hook=_raw))
    if hasattr(value, "model_dump"):  # of pydantic
        return value.model_dump(by_alias=True)
    if isinstance(value, bytes):
        return strings(value, as_base64=False)
    array = plain(value)
    return array.tolist() if hasattr(array, "tolist") else msgspec.to_builtins(value)


def _raw(value: Any) -> msgspec.Raw:
    return msgspec.Raw(json_of_object(value))


def csv_of_array(value: Any) -> bytes:
    """Write a row for each element along the first axis; raises TypeError for values that CSV can't carry."""
    array = np.atleast_1d(np.asarray(value))
    return csv_of_outputs({"": array}) if _has_numbers(array) else csv_of_values(array.tolist())


def npy_of_array(value: Any) -> bytes:
    """Write an array; raises TypeError for values of mixed types."""
    array = np.asarray(value)
    if array.dtype == BYTES:
        raise TypeError("values of mixed types can't be written as npy, which is never pickled here")
    return write_npy(array)


def _has_numbers(value: Any) -> bool:
    return (
        isinstance(value, np.ndarray)
        and value.dtype.kind in _NUMBERS
        and value.dtype.itemsize <= _WIDEST_BYTES
    )


def _listed(value: Any) -> Any:
    array = plain(value)
    if hasattr(array, "tolist"):
        return array.tolist()
    raise TypeError(f"a value of type {type(value).__name__} can't be written as JSON")
