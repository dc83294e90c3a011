"""A request's body -> arrays or features: the entry to every input format, chosen by media type."""

import codecs
from typing import Any

import numpy.typing as npt

from tfs_proxy.batch import Batch, Examples
from tfs_proxy.errors import BadInput, UnsupportedMediaType
from tfs_proxy.memory import MemoryBudget
from tfs_proxy.payload import media_types as media
from tfs_proxy.payload.media_types import MediaType
from tfs_proxy.payload.registry import FORMATS, Format, names_with, parse_media_type
from tfs_proxy.signature import Signature

_UTF8 = frozenset({"utf-8", "ascii"})
_CHARSETS = _UTF8 | {"iso8859-1", "iso8859-15", "cp1252", "utf-16", "utf-16-le", "utf-16-be"}


def decode(
    body: bytes, content_type: MediaType, signature: Signature, budget: MemoryBudget | None = None
) -> Batch:
    """Decode a body for predict: arrays by input name, typed by the signature.

    Raises BadInput that says where the body is wrong, PayloadTooLarge if it becomes more than the budget
    has left, UnsupportedMediaType for a type that can't be read or can't be converted for this model, and
    for an unknown charset.
    """
    row = readable(content_type)
    assert row.decode is not None  # noqa: S101 - what `readable` promises
    return row.decode(
        _text_or_bytes(body, content_type, row), content_type, signature, budget or MemoryBudget()
    )


def decode_examples(body: bytes, content_type: MediaType, budget: MemoryBudget | None = None) -> Examples:
    """Decode a body of named features for classify and regress; raises as `decode` does."""
    row = readable(content_type)
    if row.decode_examples is None:
        names = media.listed(names_with(lambda row: row.decode_examples))
        raise UnsupportedMediaType(
            f"classify and regress take features by name: send {names}, not {content_type.name}."
        )
    return row.decode_examples(_text_or_bytes(body, content_type, row), budget or MemoryBudget())


def decode_array(
    body: bytes | str, content_type: str | None, budget: MemoryBudget | None = None
) -> npt.NDArray[Any]:
    """A body as an array, without a signature: JSON's nested lists, CSV as ``[rows, columns]``, or npy.

    CSV is float64 if every cell is a number or empty (NaN), else text. Raises BadInput, and
    UnsupportedMediaType for any other type.
    """
    kind = parse_media_type(content_type)
    row = FORMATS.get(kind.type)
    if row is None or row.decode_array is None:
        raise media.unreadable(kind, "an input_fn", names_with(lambda row: row.decode_array))
    data = body.encode() if isinstance(body, str) else body
    return row.decode_array(_text_or_bytes(data, kind, row), kind, budget or MemoryBudget())


def as_text(body: bytes, content_type: MediaType) -> str:
    """The text of a body, from the charset that its type names; raises BadInput if it is not text."""
    try:
        return as_utf8(body, content_type).decode()
    except UnicodeDecodeError as error:
        raise BadInput(f"The body is not UTF-8: byte {error.start} can't be read.") from None


def readable(content_type: MediaType) -> Format:
    """The format of a request's body; raises UnsupportedMediaType, naming those that can be read."""
    row = FORMATS.get(content_type.type)
    if row is None or row.decode is None:
        raise media.unreadable(content_type, "a script", names_with(lambda row: row.decode))
    return row


def _text_or_bytes(body: bytes, content_type: MediaType, row: Format) -> bytes:
    return as_utf8(body, content_type) if row.is_text else body


def as_utf8(body: bytes, content_type: MediaType) -> bytes:
    """The body of a text format in UTF-8, from the ``charset`` that its media type names."""
    charset = content_type.parameters.get("charset", "utf-8")
    try:
        name = codecs.lookup(charset).name
    except (LookupError, ValueError):
        name = ""
    if name not in _CHARSETS:
        raise UnsupportedMediaType(f"The charset {media.shown(charset)} is unknown: send UTF-8.")
    if name in _UTF8:
        return body
    try:
        return body.decode(name).encode()
    except UnicodeError as error:
        raise BadInput(
            f"The body is not in the charset {charset} that Content-Type names: {error}."
        ) from None
