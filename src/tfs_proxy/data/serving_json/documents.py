"""JSON documents of a body: one, or several one after another; the first step of every JSON body."""

import json
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson
import pybase64

from tfs_proxy.values.batch import BYTES
from tfs_proxy.values.errors import BadInput, NotJson
from tfs_proxy.values.memory import MemoryBudget

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_SPACE = " \t\r\n"
REQUEST_NAMES = frozenset({"signature_name", "instances", "inputs", "examples", "context"})
"""Names that TF Serving looks up at the top of a request."""
_WHOLES = range(-(2**63), 2**64)
_MOST_WHOLE = 1e20


def documents(body: bytes, budget: MemoryBudget | None = None) -> list[Any]:
    """Read every JSON document of a body, with any white space between them.

    A byte order mark is overlooked, ``NaN``, ``Infinity`` and ``-Infinity`` are numbers (TF Serving
    reads them so), of equal names in an object the last one counts. Raises BadInput, naming
    document, line and byte offset, for anything else that is not JSON, for invalid UTF-8 and for
    objects or lists nested too deeply; PayloadTooLarge if the values are more than the budget has left.
    """
    if budget is not None:
        budget.take_json(body)
    body = body.removeprefix(BYTE_ORDER_MARK)
    try:
        return [orjson.loads(body)]
    except orjson.JSONDecodeError:
        pass
    try:
        return [orjson.loads(line) for line in body.split(b"\n") if line and not line.isspace()]
    except orjson.JSONDecodeError:
        return _one_by_one(text_in(body, NotJson))


def first_document(body: bytes) -> Any:
    """Read the first document of a body, as TF Serving does, regardless of the rest.

    Of equal names at the top the first one counts, further in the last. Strings may hold bytes that are
    not UTF-8. Raises NotJson.
    """
    body = body.removeprefix(BYTE_ORDER_MARK)
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError:
        return _first(body)
    names = REQUEST_NAMES & document.keys() if type(document) is dict else ()
    is_repeated = any(body.count(b'"%b"' % name.encode()) > 1 for name in names)
    return _first(body) if is_repeated else document


def _first(body: bytes) -> Any:
    """Read the first document if orjson can't."""
    latest: list[tuple[str, Any]] = []

    def remember(members: list[tuple[str, Any]]) -> dict[str, Any]:
        latest[:] = members  # inner objects end first, so the top one comes last
        return dict(members)

    decoder = json.JSONDecoder(object_pairs_hook=remember, parse_float=_finite, parse_int=_whole)
    text = body.decode("utf-8", "surrogateescape")
    start = _skip(text, 0)
    if start == len(text):
        raise NotJson("The document is empty.")
    try:
        document, _ = decoder.raw_decode(text, start)
        _check_surrogates(text, document, "surrogateescape")
    except json.JSONDecodeError as error:
        raise NotJson(f"{error.msg}, at character {error.pos}.") from None
    except RecursionError:
        raise NotJson("The document is nested too deeply.") from None
    except ValueError as error:
        raise NotJson(f"The document holds {error}.") from None
    return dict(reversed(latest)) if type(document) is dict else document


def in_one_line(text: bytes) -> bytes:
    """Take the line ends out of a JSON document, whose strings have none."""
    return text.translate(None, b"\r\n")


def text_in(body: bytes, refusal: type[BadInput] = BadInput) -> str:
    """Decode UTF-8; raises BadInput, or its kind ``refusal``, that names the byte."""
    try:
        return body.decode()
    except UnicodeDecodeError as error:
        raise refusal(f"The body is not UTF-8: byte {error.start} can't be read.") from None


def _finite(literal: str) -> float:
    value = float(literal)
    if value in {float("inf"), float("-inf")}:
        raise ValueError("a number too big to be a double")
    return value


def _whole(literal: str) -> int | float:
    """Read a whole number of 64 bits, or a larger one as TF Serving takes it."""
    value = _finite(literal)
    return int(literal) if abs(value) < _MOST_WHOLE and int(literal) in _WHOLES else value


_DECODER = json.JSONDecoder(parse_float=_finite)


def _one_by_one(text: str) -> list[Any]:
    """Read documents that share a line or span several, and numbers that JSON lacks."""
    read: list[Any] = []
    start = _skip(text, 0)
    while start < len(text):
        number = len(read) + 1
        try:
            document, end = _DECODER.raw_decode(text, start)
        except json.JSONDecodeError as error:
            raise _no_json(text, number, error.pos, error.msg) from None
        except RecursionError:
            raise BadInput(f"Document {number} of the body nests too deeply.", (number - 1,)) from None
        except ValueError as error:
            raise _no_json(text, number, start, str(error)) from None
        read.append(document)
        start = _skip(text, end)
        if start == end < len(text) and not (text[end - 1] in "]}" and text[end] in "[{"):
            raise _no_json(text, number, end, "unexpected text after it")
    _check_surrogates(text, read)
    return read


def _skip(text: str, start: int) -> int:
    while start < len(text) and text[start] in _SPACE:
        start += 1
    return start


def _no_json(text: str, number: int, position: int, reason: str) -> NotJson:
    offset = len(text[:position].encode())
    line = text.count("\n", 0, position) + 1
    text = f"Document {number} of the body is not JSON: {reason}, at byte {offset} (line {line})."
    return NotJson(text, (number - 1,))


def _check_surrogates(text: str, read: Any, errors: str = "strict") -> None:
    """Refuse half a surrogate pair, which UTF-8 can't encode (TF Serving refuses it too)."""
    if "\\ud" not in text.lower():
        return
    try:
        json.dumps(read, ensure_ascii=False).encode(errors=errors)
    except UnicodeEncodeError:
        raise BadInput("A string of the body has half a surrogate pair (\\ud800 to \\udfff).") from None


_NAN = b"NaN"
_INFINITY = b"Infinity"
_MINUS_INFINITY = b"-Infinity"

BASE64 = "b64"
"""Only key of TF Serving's form of bytes in JSON."""


def dumps(value: Any) -> bytes:
    """Write nested lists, dicts, numpy arrays and results of `whole` and `rows` as compact JSON."""
    return orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY)


def whole(array: npt.NDArray[Any], *, as_base64: bool) -> Any:
    """Convert one array for `dumps`; strings as base64 objects or as text."""
    if array.dtype == BYTES:
        return strings(array.tolist(), as_base64=as_base64)
    if not _is_finite(array):
        return _with_literals(array)
    return np.ascontiguousarray(array) if array.ndim else array.item()


def rows(array: npt.NDArray[Any], *, as_base64: bool) -> Sequence[Any]:
    """Convert each element along the first axis for `dumps`."""
    if array.dtype == BYTES:
        return [strings(row, as_base64=as_base64) for row in array.tolist()]
    finite = list(np.ascontiguousarray(array))
    return finite if _is_finite(array) else [_with_literals(np.asarray(row)) for row in finite]


def text_of(value: bytes) -> str | None:
    """Decode UTF-8; None if it is none."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return None


def base64_of(value: bytes) -> str:
    return pybase64.b64encode(value).decode("ascii")


def is_base64(value: Any) -> bool:
    """True if a JSON value is TF Serving's form of bytes: ``{"b64": "..."}`` alone."""
    return isinstance(value, dict) and len(value) == 1 and isinstance(value.get(BASE64), str)


def base64_bytes(value: Mapping[str, str]) -> bytes:
    """Decode such a value as TF Serving does: padding may be left out.

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
    """Write numbers with ``NaN``, ``Infinity`` and ``-Infinity``, for which orjson would write null."""
    flat = np.atleast_1d(array)
    odd = flat[~np.isfinite(flat)]
    literals = np.select([np.isnan(odd), odd > 0], [_NAN, _INFINITY], _MINUS_INFINITY).tolist()
    parts = dumps(np.ascontiguousarray(flat)).split(b"null")
    text = b"".join(chain.from_iterable(zip(parts, [*literals, b""], strict=True)))
    return orjson.Fragment(text if array.ndim else text[1:-1])


def strings(value: Any, *, as_base64: bool) -> Any:
    """Convert bytes, or nested lists of them, for `dumps`: base64 in objects, or text where it is UTF-8."""
    if isinstance(value, list):
        return [strings(element, as_base64=as_base64) for element in value]
    text = None if as_base64 else text_of(value)
    return {BASE64: base64_of(value)} if text is None else text
