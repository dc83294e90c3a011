"""Table of content types, with the entries of decoding and encoding.

To add a format, write a module in `tfs_proxy.data.formats` and a row here.
"""

import codecs
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import replace

from tfs_proxy.data.formats import untyped
from tfs_proxy.data.formats.csv_records import csv_batch
from tfs_proxy.data.formats.json_records import decode_json, decode_lines, examples_of, records_of
from tfs_proxy.data.formats.npy import npy_batch, npy_of_outputs, npz_batch, read_npy, write_npz
from tfs_proxy.data.formats.outputs import (
    csv_of_outputs,
    csv_of_values,
    json_of_outputs,
    lines_of_outputs,
    lines_of_values,
    portable,
)
from tfs_proxy.data.formats.raw_bytes import decode_bytes, decode_text
from tfs_proxy.data.formats.untyped import plain
from tfs_proxy.data.serving_json.documents import documents, text_in
from tfs_proxy.values.batch import Batch, Examples, Outputs
from tfs_proxy.values.errors import BadInput, NotAcceptable, UnsupportedMediaType
from tfs_proxy.values.memory import MemoryBudget
from tfs_proxy.values.signature import Signature
from tfs_proxy.wire import media_types as media
from tfs_proxy.wire.media_types import MediaType


class Format(Struct, frozen=True):
    """One row: a media type with its aliases, and its converters; None if there is no such conversion.

    The converters of bodies count their results against a budget.
    """

    name: str
    """Media type."""

    aliases: tuple[str, ...] = ()
    """Other media types for the same format."""

    is_text: bool = False
    """True if a body comes as UTF-8."""

    decode: Callable[[bytes, MediaType, Signature, MemoryBudget], Batch] | None = None
    """Reader of arrays by the signature, for predict."""

    decode_examples: Callable[[bytes, MemoryBudget], Examples] | None = None
    """Reader of named features, for classify and regress."""

    decode_array: Callable[[bytes, MediaType, MemoryBudget], npt.NDArray[Any]] | None = None
    """Reader of an array without a signature, for scripts that are the model."""

    encode: Callable[[Outputs], bytes] | None = None
    """Writer of arrays by output name."""

    encode_results: Callable[[Sequence[Any]], bytes] | None = None
    """Writer of the JSON values of classify and regress."""

    encode_array: Callable[[Any], bytes] | None = None
    """Writer of the answer of a script that is the model."""

    by_record: bool = True
    """True if an answer has one output record for each input record."""

    has_complex: bool = False
    """True if it can carry complex numbers."""


_JSON_LINES = {
    media.JSON_LINES: (
        "application/x-jsonlines",
        "application/json-lines",
        "application/jsonl",
        "application/x-ndjson",
        "application/ndjson",
    ),
    media.JSONS: (),
}
_ONE_STRING = {
    media.JPEG: ("image/jpg",),
    media.PNG: (),
    media.IMAGE: ("image/webp", "image/gif", "image/bmp"),
    media.BYTES: ("binary/octet-stream",),
}


def _protobuf() -> ModuleType:
    """Import the module that reads protobuf's messages, with the first such body: they take 3 MB."""
    from tfs_proxy.data.formats import examples

    return examples


# fmt: off
_ROWS = (
    Format(media.JSON, is_text=True, by_record=False,
        decode=lambda body, _, signature, budget: decode_json(body, signature, budget),
        decode_examples=lambda body, budget: examples_of(records_of(documents(body, budget))),
        decode_array=untyped.array_of_json, encode=json_of_outputs, encode_array=untyped.json_of_array),
    *(Format(name, aliases, is_text=True,
        decode=lambda body, _, signature, budget: decode_lines(body, signature, budget),
        decode_examples=lambda body, budget: examples_of(documents(body, budget)),
        encode=lines_of_outputs, encode_results=lines_of_values)
        for name, aliases in _JSON_LINES.items()),
    Format(media.CSV, ("application/csv",), is_text=True,
        decode=csv_batch, decode_array=untyped.array_of_csv,
        encode=csv_of_outputs, encode_results=csv_of_values, encode_array=untyped.csv_of_array),
    Format(media.NPY, ("application/npy",), by_record=False, has_complex=True,
        decode=lambda body, _, signature, budget: npy_batch(body, signature, budget),
        decode_array=lambda body, _, budget: read_npy(body, budget),
        encode=npy_of_outputs, encode_array=untyped.npy_of_array),
    Format(media.NPZ, ("application/npz",), by_record=False, has_complex=True,
        decode=lambda body, _, signature, budget: npz_batch(body, signature, budget), encode=write_npz),
    *(Format(name, aliases, decode=lambda body, kind, signature, _: decode_bytes(body, kind, signature))
        for name, aliases in _ONE_STRING.items()),
    Format(media.TEXT, is_text=True,
        decode=lambda body, kind, signature, _: decode_text(body, kind, signature)),
    Format(media.TF_EXAMPLE,
        decode=lambda body, _, signature, budget: _protobuf().decode_example(body, signature, budget),
        decode_examples=lambda body, budget: _protobuf().examples_of_example(body, budget)),
    Format(media.TF_RECORD,
        decode=lambda body, _, signature, budget: _protobuf().decode_tfrecords(body, signature, budget),
        decode_examples=lambda body, budget: _protobuf().examples_of_tfrecords(body, budget)),
    Format(media.RECORDIO,
        decode=lambda body, _, signature, budget: _protobuf().decode_recordio(body, signature, budget),
        decode_examples=lambda body, budget: _protobuf().examples_of_recordio(body, budget)),
)
# fmt: on

FORMATS: Mapping[str, Format] = {row.name: row for row in _ROWS}
ALIASES: Mapping[str, str] = {alias: row.name for row in _ROWS for alias in row.aliases}
"""Other names in use for a format's media type."""

_READ_AS = {
    "application/vnd.ms-excel": MediaType(media.CSV),
    "text/tab-separated-values": MediaType(media.CSV, {"delimiter": "tab"}),
    "text/json": MediaType(media.JSON),
}
"""Names of requests alone: a browser on Windows calls CSV Excel's."""

_WORKBOOKS = (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", b"PK\x03\x04")
"""Beginnings of .xls and .xlsx."""


def format_of(media_type: str) -> Format | None:
    """Row of a media type or of an alias."""
    return FORMATS.get(ALIASES.get(media_type, media_type))


def names_with(conversion: Callable[[Format], Any]) -> tuple[str, ...]:
    """Media types, without aliases, of the formats that have a ``conversion``."""
    return tuple(row.name for row in _ROWS if conversion(row) is not None)


def answered_types(conversion: Callable[[Format], Any]) -> tuple[str, ...]:
    """Types that Accept can ask for if ``conversion`` writes the answer: the default first, aliases last."""
    names = names_with(conversion)
    return *names, *(alias for alias, name in ALIASES.items() if name in names)


OUTPUT_TYPES: Sequence[str] = answered_types(lambda row: row.encode)
"""Types that Accept can ask for without a script."""

ARRAY_TYPES: Sequence[str] = answered_types(lambda row: row.encode_array)
"""Types that Accept can ask for from a script model that has no output_fn."""


def parse_media_type(header: str | None) -> MediaType:
    """Read a Content-Type header and resolve aliases; none or an empty one means application/json.

    Raises UnsupportedMediaType if it is not a media type at all.
    """
    parsed = media.parse(header)
    meant = _READ_AS.get(parsed.type)
    if meant is not None:
        return MediaType(meant.type, {**meant.parameters, **parsed.parameters}, parsed.name)
    return replace(parsed, type=ALIASES.get(parsed.type, parsed.type))


def negotiate(accept: str | None, available: Sequence[str]) -> str:
    """Pick the type of ``available`` to answer in, as `media_types.best` does; raises NotAcceptable."""
    best = media.best(accept, available)
    if best is None:
        names = media.listed(name for name in available if name not in ALIASES)
        raise NotAcceptable(
            f"Accept: {media.shown(accept or '')} can't be met: the server can answer in {names}."
        )
    return best


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
    """Decode a body without a signature: JSON's nested lists, CSV as ``[rows, columns]``, or npy.

    CSV is float64 if every cell is a number or empty (NaN), else text. Raises BadInput, and
    UnsupportedMediaType for any other type.
    """
    kind = parse_media_type(content_type)
    row = FORMATS.get(kind.type)
    if row is None or row.decode_array is None:
        raise media.unreadable(kind, "without an input_fn", names_with(lambda row: row.decode_array))
    data = body.encode() if isinstance(body, str) else body
    return row.decode_array(_text_or_bytes(data, kind, row), kind, budget or MemoryBudget())


def as_text(body: bytes, content_type: MediaType) -> str:
    """Decode text from the charset that its type names; raises BadInput if it is not text."""
    return text_in(as_utf8(body, content_type))


def readable(content_type: MediaType) -> Format:
    """Format of a request's body; raises UnsupportedMediaType, naming those that can be read."""
    row = FORMATS.get(content_type.type)
    if row is None or row.decode is None:
        raise media.unreadable(content_type, "without a script", names_with(lambda row: row.decode))
    return row


def _text_or_bytes(body: bytes, content_type: MediaType, row: Format) -> bytes:
    if row.name == media.CSV and body.startswith(_WORKBOOKS):
        raise UnsupportedMediaType("The body is a workbook of Excel, and no CSV text: save its sheet as CSV.")
    return as_utf8(body, content_type) if row.is_text else body


def as_utf8(body: bytes, content_type: MediaType) -> bytes:
    """Convert the body of a text format to UTF-8, from the ``charset`` that its media type names."""
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


def encode(
    outputs: Outputs, records: int | None, media_type: str, write: Callable[[Outputs], bytes] | None = None
) -> bytes:
    """Write outputs by name in one of `registry.OUTPUT_TYPES`, ``[records, ...]`` unless it is JSON.

    ``records`` None means as many as the first output has; ``write`` does it in a way of its own.
    Raises NotAcceptable if the model does not give one output record per input record, or for what the
    media type can't carry.
    """
    row = format_of(media_type)
    if row is None or row.encode is None:
        names = media.listed(names_with(lambda row: row.encode))
        raise NotAcceptable(f"{media.shown(media_type)} can't be written: ask for {names}.")
    outputs = portable(outputs, media_type, has_complex=row.has_complex)
    for name, array in outputs.items() if row.by_record else ():
        if array.ndim and records is None:
            records = len(array)
        if array.ndim == 0 or len(array) != records:
            count = len(array) if array.ndim else "none"
            raise _not_by_record(f'"{name}" has {count} for {1 if records is None else records}', media_type)
    return (write or row.encode)(outputs)


def encode_values(values: Sequence[Any], records: int | None, media_type: str) -> bytes:
    """Write the results of classify and regress, one JSON value per record, as `encode` does."""
    if records is not None and len(values) != records:
        raise _not_by_record(f"{len(values)} for {records}", media_type)
    row = format_of(media_type)
    if row is None or row.encode_results is None:
        raise NotAcceptable(
            f"classify and regress give no arrays, so the answer can't be {media_type}: "
            f"ask for {media.listed([media.JSON, *names_with(lambda row: row.encode_results)])}."
        )
    return row.encode_results(values)


def encode_array(value: Any, media_type: str) -> bytes:
    """Write an array, a data frame, a sparse matrix, or JSON's kinds of values as JSON, CSV or npy.

    CSV has a row for each element along the first axis. Raises NotAcceptable for any other type, and
    TypeError for values that it can't carry.
    """
    row = format_of(media_type)
    if row is None or row.encode_array is None:
        names = media.listed(names_with(lambda row: row.encode_array))
        raise NotAcceptable(
            f"{media.shown(media_type)} can't be written without an output_fn: ask for {names}."
        )
    return row.encode_array(plain(value))


def _not_by_record(what: str, media_type: str) -> NotAcceptable:
    return NotAcceptable(
        f"The model does not give one output record per input record ({what}), "
        f"so the answer can't be {media_type}: ask for {media.JSON}."
    )
