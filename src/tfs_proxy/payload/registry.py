"""The one table of content types: per format its media types, how it is decoded, and how it is encoded.

To add a format, write a module in `tfs_proxy.payload.formats` and a row here.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import replace

from tfs_proxy.batch import Batch, Examples, Outputs
from tfs_proxy.errors import NotAcceptable
from tfs_proxy.memory import MemoryBudget
from tfs_proxy.payload import media_types as media
from tfs_proxy.payload.formats import untyped
from tfs_proxy.payload.formats.csv_records import csv_batch
from tfs_proxy.payload.formats.csv_text import csv_of_outputs, csv_of_values
from tfs_proxy.payload.formats.json_outputs import json_of_outputs, lines_of_outputs, lines_of_values
from tfs_proxy.payload.formats.json_records import decode_json, examples_of, records_of
from tfs_proxy.payload.formats.npy import npy_batch, npy_of_outputs, read_npy
from tfs_proxy.payload.formats.npz import npz_batch, write_npz
from tfs_proxy.payload.formats.protobuf import (
    decode_example,
    decode_recordio,
    decode_tfrecords,
    examples_of_example,
    examples_of_recordio,
    examples_of_tfrecords,
)
from tfs_proxy.payload.formats.raw_bytes import decode_bytes, decode_text
from tfs_proxy.payload.formats.serving_lines import decode_lines
from tfs_proxy.payload.media_types import MediaType
from tfs_proxy.serving_json.documents import documents
from tfs_proxy.signature import Signature


class Format(Struct, frozen=True):
    """One row: a media type with its aliases, and its converters; None if there is no such conversion.

    ``decode`` reads arrays by the signature, for predict; ``decode_examples`` reads named features, for
    classify and regress; ``decode_array`` reads an array without a signature, for scripts that are the
    model. All three count what they make against a budget. ``encode`` writes arrays by output name,
    ``encode_results`` the JSON values that classify and regress give, ``encode_array`` what a script that
    is the model gives. A body of a format that ``is_text`` comes as UTF-8. If ``by_record``, an answer has
    one output record for each input record. ``has_complex`` says that it can carry complex numbers.
    """

    name: str
    aliases: tuple[str, ...] = ()
    is_text: bool = False
    decode: Callable[[bytes, MediaType, Signature, MemoryBudget], Batch] | None = None
    decode_examples: Callable[[bytes, MemoryBudget], Examples] | None = None
    decode_array: Callable[[bytes, MediaType, MemoryBudget], npt.NDArray[Any]] | None = None
    encode: Callable[[Outputs], bytes] | None = None
    encode_results: Callable[[Sequence[Any]], bytes] | None = None
    encode_array: Callable[[Any], bytes] | None = None
    by_record: bool = True
    has_complex: bool = False


_JSON_LINES = {
    media.JSON_LINES: (
        "application/x-jsonlines",
        "application/json-lines",
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

_ROWS = (
    Format(
        media.JSON,
        is_text=True,
        decode=lambda body, _, signature, budget: decode_json(body, signature, budget),
        decode_examples=lambda body, budget: examples_of(records_of(documents(body, budget))),
        decode_array=untyped.array_of_json,
        encode=json_of_outputs,
        encode_array=untyped.json_of_array,
        by_record=False,
    ),
    *(
        Format(
            name,
            aliases,
            is_text=True,
            decode=lambda body, _, signature, budget: decode_lines(body, signature, budget),
            decode_examples=lambda body, budget: examples_of(documents(body, budget)),
            encode=lines_of_outputs,
            encode_results=lines_of_values,
        )
        for name, aliases in _JSON_LINES.items()
    ),
    Format(
        media.CSV,
        ("application/csv",),
        is_text=True,
        decode=csv_batch,
        decode_array=untyped.array_of_csv,
        encode=csv_of_outputs,
        encode_results=csv_of_values,
        encode_array=untyped.csv_of_array,
    ),
    Format(
        media.NPY,
        ("application/npy",),
        decode=lambda body, _, signature, budget: npy_batch(body, signature, budget),
        decode_array=lambda body, _, budget: read_npy(body, budget),
        encode=npy_of_outputs,
        by_record=False,
        has_complex=True,
        encode_array=untyped.npy_of_array,
    ),
    Format(
        media.NPZ,
        ("application/npz",),
        decode=lambda body, _, signature, budget: npz_batch(body, signature, budget),
        encode=write_npz,
        by_record=False,
        has_complex=True,
    ),
    *(
        Format(name, aliases, decode=lambda body, kind, signature, _: decode_bytes(body, kind, signature))
        for name, aliases in _ONE_STRING.items()
    ),
    Format(
        media.TEXT,
        is_text=True,
        decode=lambda body, kind, signature, _: decode_text(body, kind, signature),
    ),
    Format(
        media.TF_EXAMPLE,
        decode=lambda body, _, signature, budget: decode_example(body, signature, budget),
        decode_examples=examples_of_example,
    ),
    Format(
        media.TF_RECORD,
        decode=lambda body, _, signature, budget: decode_tfrecords(body, signature, budget),
        decode_examples=examples_of_tfrecords,
    ),
    Format(
        media.RECORDIO,
        decode=lambda body, _, signature, budget: decode_recordio(body, signature, budget),
        decode_examples=examples_of_recordio,
    ),
)

FORMATS: Mapping[str, Format] = {row.name: row for row in _ROWS}
ALIASES: Mapping[str, str] = {alias: row.name for row in _ROWS for alias in row.aliases}
"""Other names in use for a format's media type."""


def format_of(media_type: str) -> Format | None:
    """The row of a media type or of an alias."""
    return FORMATS.get(ALIASES.get(media_type, media_type))


def names_with(conversion: Callable[[Format], Any]) -> tuple[str, ...]:
    """The media types, without aliases, of the formats that have a ``conversion``."""
    return tuple(row.name for row in _ROWS if conversion(row) is not None)


def answered_types(conversion: Callable[[Format], Any]) -> tuple[str, ...]:
    """What Accept can ask for if ``conversion`` writes the answer: the default first, aliases last."""
    names = names_with(conversion)
    return *names, *(alias for alias, name in ALIASES.items() if name in names)


OUTPUT_TYPES: Sequence[str] = answered_types(lambda row: row.encode)
"""What Accept can ask for without a script."""

ARRAY_TYPES: Sequence[str] = answered_types(lambda row: row.encode_array)
"""What Accept can ask for from a script model that has no output_fn."""


def parse_media_type(header: str | None) -> MediaType:
    """Read a Content-Type header and resolve aliases; none or an empty one means application/json.

    Raises UnsupportedMediaType if it is not a media type at all.
    """
    parsed = media.parse(header)
    return replace(parsed, type=ALIASES.get(parsed.type, parsed.type))


def negotiate(accept: str | None, available: Sequence[str]) -> str:
    """Pick which of ``available`` to answer in, as `media_types.best` does; raises NotAcceptable."""
    best = media.best(accept, available)
    if best is None:
        names = media.listed(name for name in available if name not in ALIASES)
        raise NotAcceptable(
            f"Accept: {media.shown(accept or '')} can't be met: the server can answer in {names}."
        )
    return best
