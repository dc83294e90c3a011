"""Outputs -> CSV: one line a record, no header row, quoted if RFC 4180 needs it.

A single scalar output is one column, a vector several, more dimensions are flattened; several
outputs follow each other in the order of their names. A number is the shortest text that gives back
the model's own value; ``NaN``, ``Infinity`` and ``-Infinity`` are written so (pandas and this package
read them); booleans are ``true`` and ``false``. Outputs whose name ends in ``_bytes``, and strings
that are not UTF-8, are base64. Lines end in a newline alone, since that is what batch transform splits
and joins at.
"""

import json
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy.typing as npt

from tfs_proxy.batch import BYTES, Outputs
from tfs_proxy.payload.formats.json_outputs import BYTES_SUFFIX
from tfs_proxy.payload.formats.pieces import by_records
from tfs_proxy.serving_json.text import base64_of, dumps, text_of, whole

_SPECIAL = re.compile(r'[,"\r\n]')


def csv_of_outputs(outputs: Outputs) -> bytes:
    """Write outputs, each ``[records, ...]``."""
    return b"".join([_csv_of(piece) for piece in by_records(outputs)])


def _csv_of(outputs: Outputs) -> bytes:
    flat = {name: _flat(outputs[name]) for name in sorted(outputs)}
    if len(flat) == 1:
        (array,) = flat.values()
        if array.dtype != BYTES and array.size:
            return _numbers(array)
    columns = [_cells(array, as_base64=name.endswith(BYTES_SUFFIX)) for name, array in flat.items()]
    return _written([cell for cells in row for cell in cells] for row in zip(*columns, strict=True))


def _flat(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return array.reshape(len(array), math.prod(array.shape[1:]))


def csv_of_values(values: Sequence[Any]) -> bytes:
    """Write JSON values, nested lists flattened."""
    return _written([_cell(leaf) for leaf in _leaves(value)] for value in values)


def _numbers(array: npt.NDArray[Any]) -> bytes:
    """PERF: one JSON text of the whole array, its brackets turned into line ends."""
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


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, list):
        for element in value:
            yield from _leaves(element)
    else:
        yield value


def _cell(leaf: Any) -> str:
    return leaf if isinstance(leaf, str) else json.dumps(leaf)


def _written(records: Iterable[list[str]]) -> bytes:
    return "".join([_line(cells) + "\n" for cells in records]).encode()


def _line(cells: Sequence[str]) -> str:
    """One record; a lone empty cell is quoted, since an empty line would be no record."""
    return '""' if list(cells) == [""] else ",".join(map(_quoted, cells))


def _quoted(cell: str) -> str:
    # NOTE: the csv module (before 3.13) leaves a lone carriage return bare if lines end in newlines.
    return '"' + cell.replace('"', '""') + '"' if _SPECIAL.search(cell) else cell
