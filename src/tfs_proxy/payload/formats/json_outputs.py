"""Outputs -> TF Serving's JSON, or JSON lines: one record a line, bare for a single output, else an object.

Numbers are written as TF Serving writes them, ``NaN``, ``Infinity`` and ``-Infinity`` included. Outputs
whose name ends in ``_bytes`` are base64 objects, as TF Serving has it; other strings are text, and base64
objects if they are not UTF-8.
"""

import json
from collections.abc import Sequence
from typing import Any

import orjson

from tfs_proxy.batch import Outputs
from tfs_proxy.payload import media_types as media
from tfs_proxy.payload.formats.pieces import by_records
from tfs_proxy.payload.portable import portable
from tfs_proxy.serving_json.text import dumps, rows, whole

PREDICTIONS = "predictions"
OUTPUTS = "outputs"
BYTES_SUFFIX = "_bytes"


def json_of_outputs(outputs: Outputs) -> bytes:
    """Write arrays by output name in row form, or in column form if they have no rows.

    The forms are in docs/reference/tensorflow-serving.md.
    Rows are bare for a single output, else objects; outputs have no rows in common if their first
    axes differ or are missing. Raises NotAcceptable for what JSON can't carry.
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
    """Write arrays by output name in column form; raises NotAcceptable for what JSON can't carry."""
    outputs = portable(outputs, media.JSON)
    return dumps({OUTPUTS: _bare({name: _whole(name, outputs) for name in outputs})})


def _whole(name: str, outputs: Outputs) -> Any:
    return whole(outputs[name], as_base64=_as_base64(name))


def _bare(columns: dict[str, Any]) -> Any:
    return next(iter(columns.values())) if len(columns) == 1 else columns


def _as_base64(name: str) -> bool:
    return name.endswith(BYTES_SUFFIX)


def lines_of_outputs(outputs: Outputs) -> bytes:
    """Write outputs, each ``[records, ...]``."""
    return b"".join([_lines_of(piece) for piece in by_records(outputs)])


def _lines_of(outputs: Outputs) -> bytes:
    names = sorted(outputs)
    columns = [rows(outputs[name], as_base64=_as_base64(name)) for name in names]
    if len(columns) == 1:
        return _lines(columns[0])
    return _lines([dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)])


def lines_of_values(values: Sequence[Any]) -> bytes:
    """Write JSON values, one a line."""
    return _lines([orjson.Fragment(json.dumps(value, separators=(",", ":"))) for value in values])


def _lines(records: Sequence[Any]) -> bytes:
    return b"".join([dumps(record) + b"\n" for record in records])
