"""Outputs -> JSON lines: one record a line, bare for a single output, else an object by name.

Numbers are written as in TF Serving's JSON, ``NaN``, ``Infinity`` and ``-Infinity`` included.
Outputs whose name ends in ``_bytes`` are base64 objects, as TF Serving has it; other strings are
text, and base64 objects where they are not UTF-8.
"""

import json
from collections.abc import Sequence
from typing import Any

import orjson

from tfs_proxy.batch import Outputs
from tfs_proxy.serving_json.text import dumps, rows

BYTES_SUFFIX = "_bytes"


def lines_of_outputs(outputs: Outputs) -> bytes:
    """Write outputs, each ``[records, ...]``."""
    names = sorted(outputs)
    columns = [rows(outputs[name], as_base64=name.endswith(BYTES_SUFFIX)) for name in names]
    if len(columns) == 1:
        return _lines(columns[0])
    return _lines([dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)])


def lines_of_values(values: Sequence[Any]) -> bytes:
    """Write JSON values, one a line."""
    return _lines([orjson.Fragment(json.dumps(value, separators=(",", ":"))) for value in values])


def _lines(records: Sequence[Any]) -> bytes:
    return b"".join([dumps(record) + b"\n" for record in records])
