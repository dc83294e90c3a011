"""Floats and doubles in the digits that TF Serving writes them in.

These are six as C's ``%g`` has them if they read back to the same number, else all that may be needed.
"""

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson

FLOAT_DIGITS, DOUBLE_DIGITS = 9, 17
_FEW = 6
_LEAST_PLAIN, _MOST_PLAIN = 1e-4, 1e6
"""Between them ``%g`` writes a number of six digits without an exponent."""

Array = npt.NDArray[Any]


def digits_of(dtype: np.dtype[Any]) -> int:
    """How many digits tell each number of a type from all others."""
    return FLOAT_DIGITS if dtype.itemsize <= np.float32().itemsize else DOUBLE_DIGITS


def decimal(value: float, digits: int) -> str:
    """Write a number, always with a dot or an exponent; one of FLOAT_DIGITS is a float32.

    What JSON has no number for is written as the bare words NaN, Infinity and -Infinity.
    """
    text = f"{value:g}"
    read = float(text)
    if value != (read if digits == DOUBLE_DIGITS else np.float32(read)):
        text = f"{value:.{digits}g}"
    return _in_json(text, value)


def decimals(values: Array) -> list[str]:
    """Write many float32 or float64 numbers, each as `decimal` does."""
    sizes = np.abs(values)
    plain = (sizes == 0) | ((sizes >= _LEAST_PLAIN) & (sizes < _MOST_PLAIN - 1))
    doubles = np.where(plain, values, 0).astype(np.float64)
    with np.errstate(divide="ignore"):
        scales = 10.0 ** (_FEW - 1 - np.where(doubles == 0, 0, np.floor(np.log10(np.abs(doubles)))))
    rounded = np.rint(doubles * scales) / scales
    done = plain & (rounded.astype(values.dtype) == values)
    if digits_of(values.dtype) == FLOAT_DIGITS:
        # Nothing is lost: a float32 of 1e-4 or more has 52 bits at most when it is scaled to nine digits.
        scales *= 10 ** (FLOAT_DIGITS - _FEW)
        rounded = np.where(done, rounded, np.rint(doubles * scales) / scales)
        done = plain
    if not done.any():
        return _formatted(values)
    # The shortest text of a number that was rounded to some digits has these digits.
    texts = orjson.dumps(rounded, option=orjson.OPT_SERIALIZE_NUMPY)[1:-1].decode().split(",")
    rest = np.flatnonzero(~done)
    for index, text in zip(rest.tolist(), _formatted(values[rest]), strict=True):
        texts[index] = text
    return texts


def _formatted(values: Array) -> list[str]:
    """Write each number by itself, whatever its size."""
    numbers = values.tolist()
    texts = [f"{number:g}" for number in numbers]
    digits = digits_of(values.dtype)
    read_back = np.fromiter(map(float, texts), np.float64, len(texts)).astype(values.dtype)
    for index in np.flatnonzero(read_back != values).tolist():
        texts[index] = f"{numbers[index]:.{digits}g}"
    return list(map(_in_json, texts, numbers))


def _in_json(text: str, value: float) -> str:
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return text if "." in text or "e" in text else f"{text}.0"
