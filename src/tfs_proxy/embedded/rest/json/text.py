"""Numbers and values as TF Serving writes them in JSON: its six digits, its layout, its error texts."""

import math
from typing import Any

import numpy as np

from tfs_proxy.serving_json.answer_text import decimal, quoted

_INDENT = "    "
_SHORTEST_PLAIN, _LONGEST_PLAIN = -6, 21


def shown(value: Any) -> str:
    """A JSON value as TF Serving's error texts show it: indented objects, lists on one line."""
    if isinstance(value, float):
        return decimal(value)
    return _written(value, 0)


def _written(value: Any, depth: int) -> str:
    if isinstance(value, str):
        return quoted(value.encode("utf-8", "surrogateescape"))
    if isinstance(value, dict):
        return _object(value, depth)
    if isinstance(value, list):
        return f"[{', '.join(_written(element, depth + 1) for element in value)}]"
    if isinstance(value, float):
        return _double(value)
    if value is None:
        return "null"
    return str(value).lower()


def _object(value: dict[str, Any], depth: int) -> str:
    if not value:
        return "{}"
    inner = _INDENT * (depth + 1)
    lines = [f"{inner}{_written(key, 0)}: {_written(element, depth + 1)}" for key, element in value.items()]
    return "{\n" + ",\n".join(lines) + "\n" + _INDENT * depth + "}"


def _double(value: float) -> str:
    """A double's shortest text, laid out as the C++ writer does: an exponent only beyond 1e21 or 1e-6."""
    if not math.isfinite(value):
        return decimal(value)
    digits, _, exponent = repr(value).partition("e")
    if not exponent:
        return digits
    power = int(exponent)
    if _SHORTEST_PLAIN <= power < _LONGEST_PLAIN:
        return np.format_float_positional(value, trim="0")
    return f"{digits.removesuffix('.0')}e{power}"
