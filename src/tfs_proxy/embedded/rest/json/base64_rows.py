"""The quick way through rows of bytes in base64, as photographs come: without a text of each in between.

Reached from `predict`, before anything else reads a body.
"""

import re
from collections.abc import Callable, Mapping

import numpy as np
import pybase64

from tfs_proxy.embedded.core.servable import Array, Tensor
from tfs_proxy.embedded.rest.json import pieces as json_pieces
from tfs_proxy.memory import STRING_BYTES, MemoryBudget
from tfs_proxy.wire.data_types import DataType

_SPACE = rb"[ \t\r\n]*"
_ROW = re.compile(
    rb'%b\{%b(?:"([^"\\]*)"%b:%b\{%b)?"b64"%b:%b"' % (_SPACE, _SPACE, _SPACE, _SPACE, _SPACE, _SPACE, _SPACE)
)
_ROW_END = re.compile(rb'"%b\}%b(?:(\})%b)?([,\]])' % (_SPACE, _SPACE, _SPACE))

Row = tuple[bytes | None, int, int]
"""The input that a row names, and where its text begins and ends."""


def decode(
    body: bytes, inputs_of: Callable[[str], Mapping[str, Tensor]], budget: MemoryBudget
) -> json_pieces.Found | None:
    """The call of a body whose rows are nothing but base64 for a model's only input.

    None for every other body. Raises ServingError only if ``inputs_of`` does, and what the budget does.
    """
    parts = json_pieces.array_parts(body)
    if parts is None or not parts[1]:
        return None
    signature, by_row, start, end = parts
    rows = _rows(body, start + 1, end)
    if rows is None:
        return None
    size_bytes = len(body) + len(rows) * STRING_BYTES
    budget.take(size_bytes)
    array = _decoded(body, rows)
    inputs = {} if array is None else inputs_of(signature)
    if array is None or not _fits({row[0] for row in rows}, inputs):
        budget.give_back(size_bytes)
        return None
    return signature, by_row, dict.fromkeys(inputs, array)


def _decoded(body: bytes, rows: list[Row]) -> Array | None:
    """The bytes of all rows; None for what is not whole groups of four, or has white space."""
    text = memoryview(body)
    array = np.empty(len(rows), object)
    try:
        array[:] = [pybase64.b64decode(text[begin:stop], validate=True) for _, begin, stop in rows]
    except ValueError:
        return None
    return array


def _fits(names: set[bytes | None], inputs: Mapping[str, Tensor]) -> bool:
    """Whether a model's only input takes rows that name these inputs, or none."""
    kinds = [tensor.data_type for tensor in inputs.values()]
    return kinds == [DataType.DT_STRING] and names in ({None}, {name.encode() for name in inputs})


def _rows(body: bytes, at: int, end: int) -> list[Row] | None:
    """The rows of a list from ``at`` on; ``end`` is behind the bracket that closes it."""
    rows: list[Row] = []
    is_last = False
    while not is_last:
        begun = _ROW.match(body, at, end)
        stop = body.find(b'"', begun.end(), end) if begun else -1
        ended = _ROW_END.match(body, stop, end) if stop >= 0 else None
        if begun is None or ended is None or (begun[1] is None) != (ended[1] is None):
            return None
        rows.append((begun[1], begun.end(), stop))
        at, is_last = ended.end(), ended[2] == b"]"
    return rows if at == end else None
