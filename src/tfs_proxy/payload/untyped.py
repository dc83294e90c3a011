"""Bodies <-> numpy arrays without a signature that names the types: the default halves of a script model.

The rules are those of AWS's toolkits (contract 1.8), but for two: an npy body is never unpickled, and CSV
is always ``[rows, columns]``, also where it has one row.
"""

import json
from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt

from tfs_proxy.batch import BYTES
from tfs_proxy.errors import BadInput, NotAcceptable
from tfs_proxy.payload import media_types as media
from tfs_proxy.payload.decode import as_utf8
from tfs_proxy.payload.formats.csv_records import Row, csv_dialect, csv_rows
from tfs_proxy.payload.formats.csv_text import csv_of_outputs, csv_of_values
from tfs_proxy.payload.formats.npy import read_npy, write_npy
from tfs_proxy.payload.media_types import MediaType, parse_media_type
from tfs_proxy.serving_json.documents import BYTE_ORDER_MARK, documents
from tfs_proxy.serving_json.numbers import csv_array
from tfs_proxy.serving_json.text import dumps, whole
from tfs_proxy.signature import TensorSpec

_DOUBLES = TensorSpec("", "DT_DOUBLE", None)
_NUMBERS = "biuf"
_WIDEST_BYTES = 8


def decode_array(body: bytes | str, content_type: str | None) -> npt.NDArray[Any]:
    """A body as an array: JSON's nested lists, CSV as ``[rows, columns]``, or what an npy file holds.

    CSV is float64 where every cell is a number or empty (NaN), else text. Raises BadInput, and
    UnsupportedMediaType for any other type.
    """
    kind = parse_media_type(content_type)
    reader = _DECODERS.get(kind.type)
    if reader is None:
        raise media.unread(kind, "an input_fn", _DECODERS)
    return reader(body.encode() if isinstance(body, str) else body, kind)


def encode_array(value: Any, media_type: str) -> bytes:
    """An array, a data frame, a sparse matrix, or JSON's kinds of values as JSON, CSV or npy.

    CSV has a row for each element along the first axis. Raises NotAcceptable for any other type, and
    TypeError for values that it can't carry.
    """
    writer = _ENCODERS.get(media.resolved(media_type))
    if writer is None:
        raise NotAcceptable(
            f"{media.shown(media_type)} can't be given without an output_fn, only {media.listed(_ENCODERS)}."
        )
    return writer(_plain(value))


def as_text(body: bytes, content_type: MediaType) -> str:
    """The text of a body, from the charset that its type names; raises BadInput where it is none."""
    try:
        return as_utf8(body, content_type).decode()
    except UnicodeDecodeError as error:
        raise BadInput(f"The body is no UTF-8: byte {error.start} can't be read.") from None


def _from_json(body: bytes, kind: MediaType) -> npt.NDArray[Any]:
    found = documents(as_utf8(body, kind))
    if len(found) != 1:
        raise BadInput(f"The body holds {len(found)} JSON documents, where one is wanted.")
    try:
        return np.array(found[0])
    except ValueError as error:
        raise BadInput(f"The body is no array: {error}.") from None


def _from_csv(body: bytes, kind: MediaType) -> npt.NDArray[Any]:
    dialect = csv_dialect(kind.parameters)
    text = as_utf8(body, kind).removeprefix(BYTE_ORDER_MARK)
    numbers = None if dialect.header else csv_array(text, _DOUBLES, dialect.delimiter)
    if numbers is not None:
        return numbers
    rows = list(islice(csv_rows(text, dialect.delimiter), int(bool(dialect.header)), None))
    _check_widths(rows)
    try:
        return np.array([[float(cell) if cell.strip() else np.nan for cell in row] for row in rows])
    except ValueError:
        return np.array(rows)


def _check_widths(rows: list[Row]) -> None:
    if not rows:
        raise BadInput("The body holds no records.")
    for number, row in enumerate(rows, start=1):
        if len(row) != len(rows[0]):
            raise BadInput(f"Row {number} has {len(row)} columns, but row 1 has {len(rows[0])}.")


def _plain(value: Any) -> Any:
    """Sparse matrices and data frames as arrays, which numpy alone would wrap whole."""
    for name in ("toarray", "to_numpy"):
        if hasattr(value, name):
            return getattr(value, name)()
    return value


def _has_numbers(value: Any) -> bool:
    return (
        isinstance(value, np.ndarray)
        and value.dtype.kind in _NUMBERS
        and value.dtype.itemsize <= _WIDEST_BYTES
    )


def _to_json(value: Any) -> bytes:
    if _has_numbers(value):
        return dumps(whole(value, as_base64=False))
    return json.dumps(value, default=_listed).encode()


def _listed(value: Any) -> Any:
    plain = _plain(value)
    if hasattr(plain, "tolist"):
        return plain.tolist()
    raise TypeError(f"a value of type {type(value).__name__} can't be written as JSON")


def _to_csv(value: Any) -> bytes:
    array = np.atleast_1d(np.asarray(value))
    return csv_of_outputs({"": array}) if _has_numbers(array) else csv_of_values(array.tolist())


def _to_npy(value: Any) -> bytes:
    array = np.asarray(value)
    if array.dtype == BYTES:
        raise TypeError("values of mixed types can't be written as npy, which is never pickled here")
    return write_npy(array)


_DECODERS: Mapping[str, Callable[[bytes, MediaType], npt.NDArray[Any]]] = {
    media.JSON: _from_json,
    media.CSV: _from_csv,
    media.NPY: lambda body, _: read_npy(body),
}
_ENCODERS: Mapping[str, Callable[[Any], bytes]] = {
    media.JSON: _to_json,
    media.CSV: _to_csv,
    media.NPY: _to_npy,
}
ENCODED = (*_ENCODERS, *(alias for alias, known in media.ALIASES.items() if known in _ENCODERS))
"""What `encode_array` can write, the default first."""
