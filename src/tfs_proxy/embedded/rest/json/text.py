"""Numbers and values as TF Serving writes them in JSON: its digits, its layout, its error texts."""

import io
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from tfs_proxy.serving_json.answer_text import quoted
from tfs_proxy.serving_json.decimals import DOUBLE_DIGITS, FLOAT_DIGITS, decimal

_MOST_CHARACTERS = 1 << 20
_INDENT = "    "
_SHORTEST_PLAIN, _LONGEST_PLAIN = -6, 21
_MOST_FLOAT = float(np.finfo(np.float32).max)


def shown(value: Any) -> str:
    """A JSON value as TF Serving's error texts show it: indented objects, lists on one line.

    A long one is cut.
    """
    if isinstance(value, float):
        # NOTE: TF Serving shows a number that a float32 can hold as one.
        fits = abs(value) <= _MOST_FLOAT
        return decimal(float(np.float32(value)), FLOAT_DIGITS) if fits else decimal(value, DOUBLE_DIGITS)
    text = io.StringIO()
    for piece in _pieces(value, 0):
        if text.tell() > _MOST_CHARACTERS:
            text.write("...")
            break
        text.write(piece)
    return text.getvalue()


def _pieces(value: Any, depth: int) -> Iterator[str]:
    if isinstance(value, dict):
        yield from _object(value, depth)
    elif isinstance(value, list):
        yield "["
        for index, element in enumerate(value):
            yield ", " if index else ""
            yield from _pieces(element, depth + 1)
        yield "]"
    else:
        yield _plain(value)


def _plain(value: Any) -> str:
    if isinstance(value, str):
        return quoted(value.encode("utf-8", "surrogateescape"))
    if isinstance(value, float):
        return _double(value)
    if value is None:
        return "null"
    return str(value).lower()


def _object(value: dict[str, Any], depth: int) -> Iterator[str]:
    if not value:
        yield "{}"
        return
    inner = _INDENT * (depth + 1)
    for index, (key, element) in enumerate(value.items()):
        yield (",\n" if index else "{\n") + f"{inner}{_plain(key)}: "
        yield from _pieces(element, depth + 1)
    yield "\n" + _INDENT * depth + "}"


def _double(value: float) -> str:
    """A double's shortest text, laid out as the C++ writer does: an exponent only beyond 1e21 or 1e-6."""
    if not math.isfinite(value):
        return decimal(value, DOUBLE_DIGITS)
    digits, _, exponent = repr(value).partition("e")
    if not exponent:
        return digits
    power = int(exponent)
    if _SHORTEST_PLAIN <= power < _LONGEST_PLAIN:
        return np.format_float_positional(value, trim="0")
    return f"{digits.removesuffix('.0')}e{power}"
