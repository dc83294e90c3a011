"""JSON as TF Serving itself writes it: its digits, its rows, its errors; only columns have less white space.

For the embedded server, which replaces TF Serving, and for answers that come as tensors and are
requested as TF Serving's REST side would give them.
"""

import io
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson
from pybase64 import b64encode

from tfs_proxy.wire.data_types import DataType
from tfs_proxy.wire.dtypes import JSON_TYPES
from tfs_proxy.wire.protos.tensors import data_type_of

INDENT = "    "
_BYTES_SUFFIX = "_bytes"
_DECIMALS = "fd"
_WRITABLE = {DataType[name] for name in JSON_TYPES} - {DataType.DT_FLOAT, DataType.DT_DOUBLE}
"""Types that have a text, apart from floats and doubles, which are decimals."""

PIECE_ELEMENTS = 100_000
"""Elements that become text at once: as Python strings they take ten times the text's memory."""

_BULK = 64

Array = npt.NDArray[Any]
Texts = list[str]


NO_ROWS = "Tensor name: "
"""Beginning of TF Serving's sentences about outputs without rows."""


class NoRows(ValueError):
    """Outputs have no row form: they do not share their first dimension; the text is TF Serving's."""


class NoText(ValueError):
    """TF Serving's JSON has no form for values of ``data_type``, a number of TensorProto.dtype."""

    def __init__(self, data_type: int) -> None:
        super().__init__(f"no JSON for tensor type {data_type}")
        self.data_type = data_type


def rows(outputs: Mapping[str, Array]) -> bytes:
    """Write ``{"predictions": […]}``: one element per row, an object of it if there are several outputs.

    Raises NoRows and NoText.
    """
    count = row_count(outputs)
    if len(outputs) == 1:
        ((name, array),) = outputs.items()
        pieces = _elements(name, array)
    else:
        pieces = _objects(outputs, count)
    text = io.BytesIO()
    text.write(b'{\n    "predictions": [')
    for piece in pieces:
        text.write(as_bytes(piece))
    text.write(b"\n    ]\n}" if count else b"]\n}")
    return text.getvalue()


def columns(outputs: Mapping[str, Array]) -> bytes:
    """Write ``{"outputs": …}``: the tensor itself, or an object of several ones. Raises NoText."""
    text = io.BytesIO()
    text.write(b'{\n    "outputs": ')
    if len(outputs) == 1:
        ((name, array),) = outputs.items()
        _write(name, array, text)
    else:
        for index, (name, array) in enumerate(outputs.items()):
            text.write(as_bytes((",\n" if index else "{\n") + f"{INDENT * 2}{quoted(name.encode())}: "))
            _write(name, array, text)
        text.write(b"\n    }")
    text.write(b"\n}")
    return text.getvalue()


def _write(name: str, array: Array, text: io.BytesIO) -> None:
    if not array.ndim:
        text.write(as_bytes(element_texts(name, array)[0]))
        return
    text.write(b"[")
    text.writelines(as_bytes(piece) for piece in _elements(name, array))
    text.write(b"]")


def classes(results: Sequence[Sequence[tuple[bytes, float]]]) -> bytes:
    """Write ``{"results": […]}`` of a classification: per example its labels with their scores."""
    listed = [
        "[" + ", ".join(f"[{quoted(label)}, {decimal(score, FLOAT_DIGITS)}]" for label, score in result) + "]"
        for result in results
    ]
    return as_bytes(f'{{\n    "results": [{", ".join(listed)}\n    ]\n}}')


def regressions(values: Iterable[float]) -> bytes:
    """Write ``{"results": […]}`` of a regression: one number per example."""
    return f'{{\n    "results": [{", ".join(decimal(value, FLOAT_DIGITS) for value in values)}]\n}}'.encode()


def as_bytes(text: str) -> bytes:
    """Encode as UTF-8, with bytes that were not UTF-8 unchanged."""
    return text.encode("utf-8", "surrogateescape")


def _elements(name: str, array: Array) -> Iterator[str]:
    """Yield the text between the brackets of an array, in pieces."""
    shape = array.shape[1:]
    step = max(1, PIECE_ELEMENTS // max(1, prod(shape)))
    for start in range(0, len(array), step):
        if start:
            yield ", "
        part = array[start : start + step]
        if part.size <= PIECE_ELEMENTS:
            yield ", ".join(_lists(element_texts(name, part), shape, len(part)))
        else:
            yield "["
            yield from _elements(name, part[0])
            yield "]"


def _objects(outputs: Mapping[str, Array], count: int) -> Iterator[str]:
    """Yield the rows of several outputs, as many at once as make a piece."""
    inner = INDENT * 3
    outer = INDENT * 2
    elements = sum(array.size for array in outputs.values())
    step = max(1, PIECE_ELEMENTS * count // max(1, elements))
    for start in range(0, count, step):
        columns = {
            quoted(name.encode()): _row_texts(name, array[start : start + step])
            for name, array in outputs.items()
        }
        objects = [
            f"{outer}{{\n"
            + ",\n".join(f"{inner}{name}: {column[index]}" for name, column in columns.items())
            + f"\n{outer}}}"
            for index in range(min(step, count - start))
        ]
        yield (",\n" if start else "\n") + ",\n".join(objects)


def _row_texts(name: str, array: Array) -> Texts:
    """Yield the rows' texts; one that is larger than a piece stands alone."""
    if array.size > PIECE_ELEMENTS:
        return [f"[{''.join(_elements(name, array[0]))}]"]
    return _lists(element_texts(name, array), array.shape[1:], len(array))


def error(text: str) -> bytes:
    """Write ``{"error": …}``."""
    return as_bytes(f'{{\n    "error": {quoted(as_bytes(text))}\n}}')


def row_count(outputs: Mapping[str, Array]) -> int:
    """Number of rows of the outputs, which may be none. Raises NoRows if they do not agree."""
    counts: list[int] = []
    for name, array in outputs.items():
        if not array.shape:
            raise NoRows(f"{NO_ROWS}{name} has no shape information ")
        counts.append(len(array))
        if counts[-1] != counts[0]:
            raise NoRows(f"{NO_ROWS}{name} has inconsistent batch size: {counts[-1]} expecting: {counts[0]}")
    return next(iter(counts), 0)


def element_texts(name: str, array: Array) -> Texts:
    """JSON text of each element, row by row; raises NoText."""
    flat = np.asarray(array).reshape(-1)
    if flat.dtype.char in _DECIMALS:
        if flat.size >= _BULK:
            return decimals(flat)
        return [decimal(value, digits_of(flat.dtype)) for value in flat.tolist()]
    return _other_texts(name, flat)


def _other_texts(name: str, flat: Array) -> Texts:
    if not flat.size:
        return []
    data_type = data_type_of(flat)
    if data_type not in _WRITABLE:
        raise NoText(data_type)
    kind = flat.dtype.kind
    if kind == "b":
        return ["true" if value else "false" for value in flat.tolist()]
    if kind in "iu":
        return [str(value) for value in flat.tolist()]
    if name.endswith(_BYTES_SUFFIX):
        return [f'{{"b64": "{b64encode(value).decode()}"}}' for value in _bytes(flat)]
    return [quoted(value) for value in _bytes(flat)]


def _bytes(flat: Array) -> list[bytes]:
    return [value if isinstance(value, bytes) else str(value).encode() for value in flat.tolist()]


def _lists(texts: Texts, shape: Sequence[int], count: int) -> Texts:
    """Join elements into ``count`` lists of this shape, on one line."""
    for level in range(len(shape) - 1, -1, -1):
        size = shape[level]
        starts = range(0, len(texts), shape[level] or 1)
        joined = [f"[{', '.join(texts[at : at + size])}]" for at in starts]
        texts = joined if size else ["[]"] * (count * prod(shape[:level]))
    return texts


def quoted(text: bytes) -> str:
    """Quote bytes that are UTF-8; other bytes are passed on as they are (surrogateescape)."""
    try:
        return orjson.dumps(text.decode()).decode()
    except UnicodeDecodeError:
        plain = text.decode("utf-8", "surrogateescape")
        return '"' + "".join(_ESCAPED.get(letter, letter) for letter in plain) + '"'


_ESCAPED = {chr(code): f"\\u{code:04X}" for code in range(32)}
_ESCAPED |= {letter: f"\\{name}" for letter, name in zip('"\\\b\f\n\r\t', '"\\bfnrt', strict=True)}


FLOAT_DIGITS = 9
DOUBLE_DIGITS = 17
_FEW = 6
_LEAST_PLAIN = 1e-4
_MOST_PLAIN = 1e6
"""Range in which ``%g`` writes a number of six digits without an exponent."""


def digits_of(dtype: np.dtype[Any]) -> int:
    """Number of digits that tell each number of a type from all others."""
    return FLOAT_DIGITS if dtype.itemsize <= np.float32().itemsize else DOUBLE_DIGITS


def decimal(value: float, digits: int) -> str:
    """Write a number, always with a dot or an exponent; one of FLOAT_DIGITS is a float32.

    Values that JSON has no number for are the bare words NaN, Infinity and -Infinity.
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
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return text if "." in text or "e" in text else f"{text}.0"
