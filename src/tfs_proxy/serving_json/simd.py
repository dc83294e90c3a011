"""JSON through simdjson: lists of numbers become buffers, without a Python object for each number."""

import threading
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import simdjson

JSONArray = simdjson.Array
JSONObject = simdjson.Object

_PARSERS = threading.local()
_KEPT_BYTES = 1 << 20
"""A parser keeps up to thirteen times the size of its largest document."""

_LARGE_PARSER = simdjson.Parser()
_LARGE_PARSER_LOCK = threading.Lock()
_LARGE_BYTES = 4 << 20
"""PERF: up to this size one parser is kept for all threads: the kernel's pages for a new one take 3 ms."""

_BUFFERS: Mapping[tuple[bool, bool], tuple[str, npt.DTypeLike]] = {
    (False, False): ("d", np.float64),
    (True, False): ("i", np.int64),
    (True, True): ("u", np.uint64),
}
"""Of (whole numbers, of the widest unsigned type): simdjson's letter for a buffer, and its type."""


def parse(body: bytes) -> Any:
    """The document of a body, in this thread's own parser, which keeps its memory, if the body is small.

    Raises ValueError for what simdjson does not read.
    """
    if len(body) > _KEPT_BYTES:
        return _parse_large(body)
    parser = getattr(_PARSERS, "own", None)
    if parser is None:
        parser = _PARSERS.own = simdjson.Parser()
    try:
        return parser.parse(body)
    except RuntimeError:
        # A parser parses nothing anew while something that it parsed before is still in use.
        return _parse_anew(body)


def _parse_large(body: bytes) -> Any:
    if len(body) > _LARGE_BYTES or not _LARGE_PARSER_LOCK.acquire(blocking=False):
        return _parse_anew(body)
    try:
        return _LARGE_PARSER.parse(body)
    except RuntimeError:  # another thread still uses what it has parsed
        return _parse_anew(body)
    finally:
        _LARGE_PARSER_LOCK.release()


def _parse_anew(body: bytes) -> Any:
    try:
        return simdjson.Parser().parse(body)
    except RuntimeError as error:
        raise ValueError("the document is nested more deeply than simdjson reads") from error


def numbers_of(array: Any, dtype: np.dtype[Any]) -> npt.NDArray[Any] | None:
    """The numbers ``[n]`` of a parsed list of any depth, in the widest type of their kind.

    None if a whole number is out of the range of ``dtype``. Raises ValueError or TypeError if the list
    holds anything but numbers of that kind.
    """
    letter, widest = _BUFFERS[dtype.kind in "iu", dtype == np.uint64]
    values = np.frombuffer(array.as_buffer(of_type=letter), widest)
    return values if _fit(values, dtype) else None


def _fit(values: npt.NDArray[Any], dtype: np.dtype[Any]) -> bool:
    """Whether whole numbers are within the range of ``dtype``; any number may become a float."""
    if dtype.kind == "f" or not values.size:
        return True
    limits = np.iinfo(dtype)
    return bool(values.min() >= limits.min and values.max() <= limits.max)
