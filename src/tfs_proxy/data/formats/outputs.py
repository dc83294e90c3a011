"""JSON and CSV of a model's outputs, record by record, and arrays as each media type can carry them."""

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson

from tfs_proxy.data.serving_json.documents import base64_of, dumps, rows, text_of, whole
from tfs_proxy.values.batch import BYTES, Outputs
from tfs_proxy.values.errors import NotAcceptable
from tfs_proxy.wire import media_types as media


def portable(outputs: Mapping[str, npt.ArrayLike], media_type: str, *, has_complex: bool = False) -> Outputs:
    """Convert arrays to native numbers, and text to ``bytes``; bfloat16 becomes float32.

    Raises NotAcceptable for values that ``media_type`` can't carry: dates, objects, and complex numbers
    unless it ``has_complex``.
    """
    return {
        name: _portable(name, np.asarray(array), media_type, has_complex=has_complex)
        for name, array in outputs.items()
    }


def _portable(name: str, array: npt.NDArray[Any], media_type: str, *, has_complex: bool) -> npt.NDArray[Any]:
    kind = array.dtype.kind
    if kind in "biuf":
        return array.astype(array.dtype.newbyteorder("="), copy=False)
    if array.dtype.name == "bfloat16":
        return array.astype(np.float32)
    if kind in "SUO":
        if array.dtype == BYTES and all(type(value) is bytes for value in array.ravel()):
            return array
        strings = []
        for value in array.ravel().tolist():
            if not isinstance(value, str | bytes):
                raise NotAcceptable(
                    f'The output "{name}" has a {type(value).__name__}, which {media_type} can\'t carry.'
                )
            strings.append(value.encode("utf-8", "surrogateescape") if isinstance(value, str) else value)
        return np.array(strings, BYTES).reshape(array.shape)
    if kind == "c" and has_complex:
        return array
    raise NotAcceptable(
        f'The output "{name}" is {array.dtype.name}, which {media_type} can\'t carry'
        + (f": ask for {media.NPY} or {media.NPZ}." if kind == "c" else ".")
    )


PIECE_ELEMENTS = 100_000
"""Elements that become text at once: as Python objects they take ten times the text's memory."""


def by_records(outputs: Outputs) -> Iterator[Outputs]:
    """Split outputs, each ``[records, ...]``, into parts of some records with about a piece's elements."""
    records = max((len(array) for array in outputs.values()), default=0)
    elements = sum(math.prod(array.shape[1:]) for array in outputs.values())
    step = max(1, PIECE_ELEMENTS // max(1, elements))
    if records <= step:
        yield outputs
        return
    for start in range(0, records, step):
        yield {name: array[start : start + step] for name, array in outputs.items()}


PREDICTIONS = "predictions"
OUTPUTS = "outputs"
BYTES_SUFFIX = "_bytes"


def json_of_outputs(outputs: Outputs) -> bytes:
    """Write arrays by output name in row form, or in column form if they have no rows.

    The forms are in docs/reference/tensorflow-serving.md.
    Rows are bare for a single output, else objects; outputs have no rows in common if their first
    axes differ or are missing. Raises NotAcceptable for values that JSON can't carry.
    """
    outputs = portable(outputs, media.JSON)
    lengths = {array.shape[:1] for array in outputs.values()}
    if len(lengths) != 1 or () in lengths:
        return columns_of_outputs(outputs)
    columns = {name: rows(array, as_base64=_as_base64(name)) for name, array in outputs.items()}
    if len(columns) == 1:
        return dumps({PREDICTIONS: list(*columns.values())})
    by_row = zip(*columns.values(), strict=True)
    return dumps({PREDICTIONS: [dict(zip(columns, row, strict=True)) for row in by_row]})


def columns_of_outputs(outputs: Outputs) -> bytes:
    """Write arrays by output name in column form; raises NotAcceptable for values that JSON can't carry."""
    outputs = portable(outputs, media.JSON)
    columns = {name: whole(outputs[name], as_base64=_as_base64(name)) for name in outputs}
    return dumps({OUTPUTS: (next(iter(columns.values())) if len(columns) == 1 else columns)})


def _as_base64(name: str) -> bool:
    return name.endswith(BYTES_SUFFIX)


def lines_of_outputs(outputs: Outputs) -> bytes:
    """Write outputs, each ``[records, ...]``."""
    names = sorted(outputs)
    text = []
    for piece in by_records(outputs):
        columns = [rows(piece[name], as_base64=_as_base64(name)) for name in names]
        by_row = (dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True))
        text.append(_lines(columns[0] if len(columns) == 1 else by_row))
    return b"".join(text)


def lines_of_values(values: Sequence[Any]) -> bytes:
    """Write JSON values, one a line."""
    return _lines([orjson.Fragment(json.dumps(value, separators=(",", ":"))) for value in values])


def _lines(records: Iterable[Any]) -> bytes:
    return b"".join([dumps(record) + b"\n" for record in records])


_SPECIAL = re.compile(r'[,"\r\n]')


def csv_of_outputs(outputs: Outputs) -> bytes:
    """Write outputs, each ``[records, ...]``."""
    return b"".join([_csv_of(piece) for piece in by_records(outputs)])


def _csv_of(outputs: Outputs) -> bytes:
    named = sorted(outputs.items())
    flat = {name: array.reshape(len(array), math.prod(array.shape[1:])) for name, array in named}
    if len(flat) == 1:
        (array,) = flat.values()
        if array.dtype != BYTES and array.size:
            return _numbers(array)
    columns = [_cells(array, as_base64=_as_base64(name)) for name, array in flat.items()]
    return _written([cell for cells in row for cell in cells] for row in zip(*columns, strict=True))


def csv_of_values(values: Sequence[Any]) -> bytes:
    """Write JSON values, nested lists flattened."""
    return _written(list(_leaves(value)) for value in values)


def _numbers(array: npt.NDArray[Any]) -> bytes:
    """Write the whole array as one JSON text, its brackets turned into line ends.

    PERF: row "to CSV": 3.7 ms a megabyte instead of 74.5.
    """
    text = dumps(whole(array, as_base64=False))
    return text[2:-2].replace(b"],[", b"\n") + b"\n"


def _cells(array: npt.NDArray[Any], *, as_base64: bool) -> list[list[str]]:
    if array.dtype != BYTES:
        if not array.size:
            return [[] for _ in array]
        return [line.split(",") for line in _numbers(array).decode().splitlines()]
    return [[_text(value, as_base64=as_base64) for value in row] for row in array.tolist()]


def _text(value: bytes, *, as_base64: bool) -> str:
    text = None if as_base64 else text_of(value)
    return base64_of(value) if text is None else text


def _leaves(value: Any) -> Iterator[str]:
    if isinstance(value, list):
        for element in value:
            yield from _leaves(element)
    else:
        yield value if isinstance(value, str) else json.dumps(value)


def _written(records: Iterable[list[str]]) -> bytes:
    # A lone empty cell is quoted, since an empty line would be no record.
    lines = ('""' if cells == [""] else ",".join(map(_quoted, cells)) for cells in records)
    return "".join([f"{line}\n" for line in lines]).encode()


def _quoted(cell: str) -> str:
    # NOTE: the csv module (before 3.13) leaves a lone carriage return bare if lines end in newlines.
    return '"' + cell.replace('"', '""') + '"' if _SPECIAL.search(cell) else cell
