"""Arrays -> JSON text that loses nothing: what requests to a model server and answers share."""

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson
import pybase64

from tfs_proxy.batch import BYTES

_NAN, _INFINITY, _MINUS_INFINITY = b"NaN", b"Infinity", b"-Infinity"

BASE64 = "b64"
"""The only key of TF Serving's way to write bytes in JSON."""


def dumps(value: Any) -> bytes:
    """Compact JSON of nested lists, dicts, numpy arrays and what `whole` and `rows` give."""
    return orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY)


def whole(array: npt.NDArray[Any], *, as_base64: bool) -> Any:
    """One array as something that `dumps` writes; strings as base64 objects or as text."""
    if array.dtype == BYTES:
        return _strings(array.tolist(), as_base64=as_base64)
    if not _is_finite(array):
        return _with_literals(array)
    return np.ascontiguousarray(array) if array.ndim else array.item()


def rows(array: npt.NDArray[Any], *, as_base64: bool) -> Sequence[Any]:
    """Each element along the first axis, as `whole` gives arrays."""
    if array.dtype == BYTES:
        return [_strings(row, as_base64=as_base64) for row in array.tolist()]
    finite = list(np.ascontiguousarray(array))
    return finite if _is_finite(array) else [_with_literals(np.asarray(row)) for row in finite]


def text_of(value: bytes) -> str | None:
    """Bytes as text; None if they are not UTF-8."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return None


def base64_of(value: bytes) -> str:
    """Bytes in base64."""
    return pybase64.b64encode(value).decode("ascii")


def is_base64(value: Any) -> bool:
    """Whether a JSON value is TF Serving's way to write bytes: ``{"b64": "..."}`` alone."""
    return isinstance(value, dict) and len(value) == 1 and isinstance(value.get(BASE64), str)


def base64_bytes(value: Mapping[str, str]) -> bytes:
    """The bytes of such a value, read as TF Serving reads them: padding may be left out.

    Raises ValueError if it is not base64.
    """
    text = value[BASE64]
    try:
        return _decoded(text)
    except ValueError:
        # White space is rare, and looking for it costs more than decoding.
        return _decoded("".join(text.split()))


def _decoded(text: str) -> bytes:
    bare = text.rstrip("=.")
    padding = "=" * (-len(bare) % 4)
    if len(text) - len(bare) not in {0, len(padding)}:
        raise ValueError("the padding is neither whole nor left out")
    return pybase64.b64decode(bare + padding, validate=True)


def _is_finite(array: npt.NDArray[Any]) -> bool:
    return array.dtype.kind != "f" or bool(np.isfinite(array).all())


def _with_literals(array: npt.NDArray[Any]) -> orjson.Fragment:
    """Numbers with ``NaN``, ``Infinity`` and ``-Infinity``, for which orjson would write null."""
    flat = np.atleast_1d(array)
    odd = flat[~np.isfinite(flat)]
    literals = np.select([np.isnan(odd), odd > 0], [_NAN, _INFINITY], _MINUS_INFINITY).tolist()
    parts = dumps(np.ascontiguousarray(flat)).split(b"null")
    text = b"".join(chain.from_iterable(zip(parts, [*literals, b""], strict=True)))
    return orjson.Fragment(text if array.ndim else text[1:-1])


def _strings(value: Any, *, as_base64: bool) -> Any:
    if isinstance(value, list):
        return [_strings(element, as_base64=as_base64) for element in value]
    text = None if as_base64 else text_of(value)
    return {BASE64: base64_of(value)} if text is None else text
