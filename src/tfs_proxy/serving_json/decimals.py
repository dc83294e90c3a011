"""Floats and doubles in the digits that TF Serving writes them in.

These are six as C's ``%g`` has them if they read back to the same number, else all that may be needed.
"""

import math
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson

FLOAT_DIGITS, DOUBLE_DIGITS = 9, 17
_FEW = 6
_LEAST_PLAIN = -4
_MOST_POWER = 345

_WIDE = np.longdouble
_ERROR = float(np.finfo(_WIDE).eps) * 1.5
"""What a number times a power of ten may be wrong by, as a part of it: both are rounded once."""

_ZERO, _DOT, _COMMA = b"0.,"
_NOTHING = b"\0"

Array = npt.NDArray[Any]


def digits_of(dtype: np.dtype[Any]) -> int:
    """How many digits tell each number of a type from all others."""
    return FLOAT_DIGITS if dtype.itemsize <= np.float32().itemsize else DOUBLE_DIGITS


def decimal(value: float, digits: int) -> str:
    """Write a number, always with a dot or an exponent; one of FLOAT_DIGITS is a float32.

    What JSON has no number for is written as the bare words NaN, Infinity and -Infinity.
    """
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    text = f"{value:g}"
    read = float(text)
    if value != (read if digits == DOUBLE_DIGITS else np.float32(read)):
        text = f"{value:.{digits}g}"
    return text if "." in text or "e" in text else text + ".0"


def decimals(values: Array) -> list[str]:
    """Write many float32 or float64 numbers, each as `decimal` does."""
    sizes = np.abs(values)
    plain = (sizes == 0) | ((sizes >= 10.0**_LEAST_PLAIN) & (sizes < 10**_FEW - 1))
    doubles = np.where(plain, values, 0).astype(np.float64)
    with np.errstate(divide="ignore"):
        scales = 10.0 ** (_FEW - 1 - np.where(doubles == 0, 0, np.floor(np.log10(np.abs(doubles)))))
    rounded = np.rint(doubles * scales) / scales
    simple = rounded.astype(values.dtype) == values
    if digits_of(values.dtype) == FLOAT_DIGITS:
        # Nothing is lost: a float32 of 1e-4 or more has 52 bits at most when it is scaled to nine digits.
        scales *= 10 ** (FLOAT_DIGITS - _FEW)
        rounded = np.where(simple, rounded, np.rint(doubles * scales) / scales)
        simple |= doubles != 0
    if not simple.any():
        return _computed(values)
    # The shortest text of a number that was rounded to some digits has these digits.
    texts = orjson.dumps(rounded, option=orjson.OPT_SERIALIZE_NUMPY)[1:-1].decode().split(",")
    rest = np.flatnonzero(~simple)
    for index, text in zip(rest.tolist(), _computed(values[rest]) if rest.size else (), strict=True):
        texts[index] = text
    return texts


def _computed(values: Array) -> list[str]:
    """Write numbers of any size as `decimal` does.

    PERF: all digits are computed at once, as whole numbers. Where rounding may have gone wrong, or a number
    is next to a power of ten, it is written alone; so are those that are not finite.
    """
    digits = digits_of(values.dtype)
    known = np.isfinite(values) & (values != 0)
    sizes = np.where(known, np.abs(values), 1).astype(_WIDE)
    powers = np.floor(np.log10(sizes.astype(np.float64))).astype(np.int64)
    few, few_sure = _whole(sizes, powers, _FEW)
    is_short, sure = _reads_back(few * _powers_of_ten()[powers - _FEW + 1], sizes.astype(values.dtype))
    many, many_sure = _whole(sizes, powers, digits)
    whole = np.where(is_short, few * 10 ** (digits - _FEW), many).astype(np.int64)
    sure &= np.where(is_short, few_sure, many_sure) & (whole >= 10 ** (digits - 1)) & (whole < 10**digits)
    whole[~sure] = 10 ** (digits - 1)
    texts = _laid_out(whole, np.signbit(values), powers, np.where(is_short, _FEW, digits))
    alone = np.flatnonzero(~(sure & known))
    for index, value in zip(alone.tolist(), values[alone].tolist(), strict=True):
        texts[index] = decimal(value, digits)
    return texts


def _whole(sizes: Array, powers: Array, digits: int) -> tuple[Array, Array]:
    """The first ``digits`` digits of numbers as whole ones, and where they are sure."""
    scaled = sizes * _powers_of_ten()[digits - 1 - powers]
    rounded = np.rint(scaled)
    return rounded, np.abs(np.abs(scaled - rounded) - 0.5) > scaled * _ERROR


def _reads_back(written: Array, sizes: Array) -> tuple[Array, Array]:
    """Where what is written reads back to the same numbers, and where that is sure."""
    below, above = ((written * (1 + sign * 2 * _ERROR)).astype(sizes.dtype) == sizes for sign in (-1, 1))
    return below & above, below == above


def _laid_out(whole: Array, negative: Array, powers: Array, precision: Array) -> list[str]:
    """Texts from the digits of each number as C's ``%g`` lays them out, with ".0" behind whole numbers."""
    text = bytearray(orjson.dumps(whole, option=orjson.OPT_SERIALIZE_NUMPY))
    digits = np.frombuffer(text, np.uint8)[1:].reshape(len(whole), -1)
    width = digits.shape[1]
    digits[:, -1] = _ZERO  # where the commas are
    kept = width - np.argmax(digits[:, ::-1] != _ZERO, axis=1)
    has_exponent = (powers < _LEAST_PLAIN) | (powers >= precision)
    dots = np.where(has_exponent, 1, np.maximum(powers + 1, 0))
    kept = np.where(has_exponent | (powers < 0), kept, np.maximum(kept, dots + 1))
    digits *= np.arange(width) < kept[:, None]
    body = np.where(
        np.arange(width + 1) < dots[:, None],
        np.pad(digits, ((0, 0), (0, 1))),
        np.pad(digits, ((0, 0), (1, 0))),
    )
    body[np.arange(len(body)), dots] = np.where((dots > 0) & (kept > dots), _DOT, 0)
    columns = (
        _bytes(np.where(negative, b"-", b"")),
        _bytes(_LEADS[np.where(has_exponent, 0, np.maximum(-powers, 0))]),
        body,
        _bytes(_exponents()[np.where(has_exponent, powers, 0)]),
        np.full((len(body), 1), _COMMA, np.uint8),
    )
    joined = np.concatenate(columns, axis=1).tobytes()
    return joined.translate(None, _NOTHING)[:-1].decode().split(",")


def _bytes(texts: Array) -> Array:
    """The characters of each text, with nothing behind short ones."""
    return texts.view(np.uint8).reshape(len(texts), -1)


_LEADS = np.array([b"", b"0.", b"0.0", b"0.00", b"0.000"])
"""What stands before the first digit of a number below 1, by how many times ten makes it 1 or more."""


@cache
def _exponents() -> Array:
    """Texts of exponents: that of a negative one is found by its negative index."""
    powers = [*range(_MOST_POWER + 1), *range(-_MOST_POWER, 0)]
    return np.array([f"e{power:+03}".encode() if power else b"" for power in powers])


@cache
def _powers_of_ten() -> Array:
    """The powers of ten that numbers are scaled by, found as `_exponents` finds its texts."""
    powers = [*range(_MOST_POWER + 1), *range(-_MOST_POWER, 0)]
    return np.array([_WIDE(f"1e{power}") for power in powers])
