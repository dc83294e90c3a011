"""Where two answers differ: numbers within a tolerance are equal, everything else must be the same; pure."""

import csv
import io
import json
import math
from collections.abc import Iterator
from itertools import zip_longest
from typing import Any

from tfs_proxy.errors import UnsupportedMediaType
from tfs_proxy.payload import media_types as media

RELATIVE, ABSOLUTE = 1e-5, 1e-7
"""By default as much as two machines' float32 kernels differ."""

_SHOWN = 60
_MISSING = object()


def body_difference(content_type: str, ours: bytes, theirs: bytes, relative: float = RELATIVE) -> str | None:
    """A sentence that names the first place where the bodies differ, or None.

    JSON is compared by value and CSV by cell, with a relative tolerance for numbers; other types, and what
    can't be read, by their bytes.
    """
    if ours == theirs:
        return None
    try:
        kind = media.parse(content_type).type
    except UnsupportedMediaType:
        kind = ""
    try:
        if kind == media.JSON:
            return next(_differences(json.loads(ours), json.loads(theirs), "$", relative), None)
        if kind == media.CSV:
            return next(_differences(_cells(ours), _cells(theirs), "", relative), None)
    except (ValueError, RecursionError, OverflowError, csv.Error):
        pass
    return _byte_difference(ours, theirs)


def _byte_difference(ours: bytes, theirs: bytes) -> str:
    pairs = enumerate(zip(ours, theirs, strict=False))
    place = next((at for at, (one, other) in pairs if one != other), min(len(ours), len(theirs)))
    return f"byte {place} differs (of {len(ours)} and {len(theirs)} bytes)"


def _cells(body: bytes) -> list[list[float | str]]:
    rows = csv.reader(io.StringIO(body.decode()))
    return [[_number_or_text(cell) for cell in row] for row in rows]


def _number_or_text(cell: str) -> float | str:
    try:
        return float(cell)
    except ValueError:
        return cell


def _differences(ours: Any, theirs: Any, place: str, relative: float) -> Iterator[str]:
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for name in {**ours, **theirs}:
            yield from _differences(
                ours.get(name, _MISSING), theirs.get(name, _MISSING), f"{place}.{name}", relative
            )
    elif isinstance(ours, list) and isinstance(theirs, list):
        for at, (one, other) in enumerate(zip_longest(ours, theirs, fillvalue=_MISSING)):
            yield from _differences(one, other, f"{place}[{at}]", relative)
    elif not _are_equal(ours, theirs, relative):
        yield f"{place} is {_shown(ours)} and {_shown(theirs)}"


def _are_equal(ours: Any, theirs: Any, relative: float) -> bool:
    if _is_number(ours) and _is_number(theirs):
        both_nan = math.isnan(ours) and math.isnan(theirs)
        return both_nan or math.isclose(ours, theirs, rel_tol=relative, abs_tol=ABSOLUTE)
    return type(ours) is type(theirs) and bool(ours == theirs)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _shown(value: Any) -> str:
    if value is _MISSING:
        return "missing"
    text = json.dumps(value)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "..."
