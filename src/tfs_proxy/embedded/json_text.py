"""Numbers and values as TF Serving writes them in JSON: its six digits, its layout, its error texts."""

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson

_INDENT = "    "
_BULK = 64
_LEAST_PLAIN, _MOST_PLAIN = 1e-4, 1e6
_SHORTEST_PLAIN, _LONGEST_PLAIN = -6, 21


def decimal(value: float) -> str:
    """A float in at most six significant digits, as C's ``%g`` has it, and always with a dot or an exponent.

    What JSON has no number for is written as the bare words NaN, Infinity and -Infinity.
    """
    text = f"{value:g}"
    if "." in text or "e" in text:
        return text
    if math.isfinite(value):
        return text + ".0"
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def decimals(values: npt.NDArray[Any]) -> list[str] | None:
    """The same for many values at once; None where some would be written with an exponent.

    Rounded to six digits as doubles, the shortest text of a value is its six-digit one.
    """
    if values.size < _BULK:
        return None
    doubles = values.astype(np.float64).ravel()
    sizes = np.abs(doubles)
    plain = (sizes == 0) | ((sizes >= _LEAST_PLAIN) & (sizes < _MOST_PLAIN - 1))
    if not plain.all():
        return None
    with np.errstate(divide="ignore"):
        scale = 10.0 ** (5 - np.where(sizes == 0, 0, np.floor(np.log10(sizes))))
    rounded = np.rint(doubles * scale) / scale
    return orjson.dumps(rounded, option=orjson.OPT_SERIALIZE_NUMPY)[1:-1].decode().split(",")


def quoted(text: bytes) -> str:
    """A JSON string of bytes that are UTF-8; other bytes are passed on as they are (surrogateescape)."""
    try:
        return orjson.dumps(text.decode()).decode()
    except UnicodeDecodeError:
        plain = text.decode("utf-8", "surrogateescape")
        return '"' + "".join(_ESCAPED.get(letter, letter) for letter in plain) + '"'


_ESCAPED = {chr(code): f"\\u{code:04X}" for code in range(32)} | {
    '"': '\\"',
    "\\": "\\\\",
    "\b": "\\b",
    "\f": "\\f",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
}


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
        return f"[{', '.join(_written(each, depth + 1) for each in value)}]"
    if isinstance(value, float):
        return _double(value)
    return {True: "true", False: "false", None: "null"}[value] if not _is_int(value) else str(value)


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _object(value: dict[str, Any], depth: int) -> str:
    if not value:
        return "{}"
    inner = _INDENT * (depth + 1)
    lines = [f"{inner}{_written(key, 0)}: {_written(each, depth + 1)}" for key, each in value.items()]
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
