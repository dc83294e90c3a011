"""Arrays -> JSON text that loses nothing: what requests to a model server and answers share."""

import base64
import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson

from tfs_proxy.payload.batch import BYTES

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
        return _with_nan(_shortest(array))
    return np.ascontiguousarray(array) if array.ndim else array.item()


def rows(array: npt.NDArray[Any], *, as_base64: bool) -> Sequence[Any]:
    """Each element along the first axis, as `whole` gives arrays."""
    if array.dtype == BYTES:
        return [_strings(row, as_base64=as_base64) for row in array.tolist()]
    if not _is_finite(array):
        return [_with_nan(row) for row in _shortest(array)]
    return list(np.ascontiguousarray(array))


def text_of(value: bytes) -> str | None:
    """Bytes as text; None where they are no UTF-8."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return None


def base64_of(value: bytes) -> str:
    """Bytes in base64."""
    return base64.b64encode(value).decode("ascii")


def _is_finite(array: npt.NDArray[Any]) -> bool:
    return array.dtype.kind != "f" or bool(np.isfinite(array).all())


def _with_nan(value: Any) -> orjson.Fragment:
    return orjson.Fragment(json.dumps(value, separators=(",", ":")))


def _shortest(array: npt.NDArray[Any]) -> Any:
    """Nested lists whose numbers read ``0.1`` where the array's own type says 0.1."""
    return array.astype(str).astype(np.float64).tolist()


def _strings(value: Any, *, as_base64: bool) -> Any:
    if isinstance(value, list):
        return [_strings(each, as_base64=as_base64) for each in value]
    text = None if as_base64 else text_of(value)
    return {BASE64: base64_of(value)} if text is None else text
