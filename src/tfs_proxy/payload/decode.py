"""A request's body -> `Batch`: the entry to every input format, chosen by media type."""

import codecs
from collections.abc import Callable, Mapping

from tfs_proxy.batch import Batch, Examples
from tfs_proxy.errors import BadInput, UnsupportedMediaType
from tfs_proxy.payload import media_types as media
from tfs_proxy.payload.arrays import batch_of_arrays
from tfs_proxy.payload.formats.csv_records import csv_dialect, decode_csv
from tfs_proxy.payload.formats.json_records import decode_json, decode_lines, examples_of, records_of
from tfs_proxy.payload.formats.npy import read_npy
from tfs_proxy.payload.formats.npz import read_npz
from tfs_proxy.payload.formats.raw_bytes import decode_bytes
from tfs_proxy.payload.formats.recordio_protobuf import decode_recordio, examples_of_recordio
from tfs_proxy.payload.formats.tf_example import (
    decode_example,
    decode_tfrecords,
    examples_of_example,
    examples_of_tfrecords,
)
from tfs_proxy.payload.media_types import MediaType
from tfs_proxy.serving_json.documents import documents
from tfs_proxy.signature import Signature

Decoder = Callable[[bytes, MediaType, Signature, int], Batch]
ExampleDecoder = Callable[[bytes, int], Examples]

DEFAULT_LIMIT_BYTES = 100 * 1024 * 1024
"""What a body may unpack to where a caller names no limit of its own."""

_UTF8 = frozenset({"utf-8", "ascii"})
_CHARSETS = _UTF8 | {"iso8859-1", "iso8859-15", "cp1252", "utf-16", "utf-16-le", "utf-16-be"}


def _csv(body: bytes, content_type: MediaType, signature: Signature, _: int) -> Batch:
    return decode_csv(body, signature, csv_dialect(content_type.parameters))


def _npy(body: bytes, _: MediaType, signature: Signature, __: int) -> Batch:
    if len(signature.inputs) > 1:
        raise BadInput(
            f"An npy body holds one array, but the model takes {len(signature.inputs)} inputs "
            f"({', '.join(sorted(signature.inputs))}): send npz, with an array for each of them."
        )
    return batch_of_arrays({"": read_npy(body)}, signature)


def _bytes(body: bytes, content_type: MediaType, signature: Signature, _: int) -> Batch:
    return decode_bytes(body, content_type, signature)


def _example(body: bytes, _: MediaType, signature: Signature, __: int) -> Batch:
    return decode_example(body, signature)


DECODERS: Mapping[str, Decoder] = {
    media.JSON: lambda body, _, signature, __: decode_json(body, signature),
    media.JSON_LINES: lambda body, _, signature, __: decode_lines(body, signature),
    media.JSONS: lambda body, _, signature, __: decode_lines(body, signature),
    media.CSV: _csv,
    media.NPY: _npy,
    media.NPZ: lambda body, _, signature, limit: batch_of_arrays(read_npz(body, limit), signature),
    media.JPEG: _bytes,
    media.PNG: _bytes,
    media.IMAGE: _bytes,
    media.BYTES: _bytes,
    media.TF_EXAMPLE: _example,
    media.TF_RECORD: lambda body, _, signature, limit: decode_tfrecords(body, signature, limit),
    media.RECORDIO: lambda body, _, signature, limit: decode_recordio(body, signature, limit),
}
"""How each media type is read for predict."""

EXAMPLE_DECODERS: Mapping[str, ExampleDecoder] = {
    media.JSON: lambda body, _: examples_of(records_of(documents(body))),
    media.JSON_LINES: lambda body, _: examples_of(documents(body)),
    media.JSONS: lambda body, _: examples_of(documents(body)),
    media.TF_EXAMPLE: lambda body, _: examples_of_example(body),
    media.TF_RECORD: examples_of_tfrecords,
    media.RECORDIO: examples_of_recordio,
}
"""How each media type is read for classify and regress."""

_TEXT = frozenset({media.JSON, media.JSON_LINES, media.JSONS, media.CSV})


def decode(
    body: bytes, content_type: MediaType, signature: Signature, limit_bytes: int = DEFAULT_LIMIT_BYTES
) -> Batch:
    """Decode a body for predict: arrays by input name, typed by the signature.

    ``limit_bytes`` is what it may unpack to, where it is packed. Raises BadInput saying where the body
    is wrong, PayloadTooLarge where it unpacks to more, UnsupportedMediaType for a type that is not in
    `DECODERS` or can't be converted for this model, or a charset that is not known.
    """
    decoder = DECODERS.get(content_type.type)
    if decoder is None:
        raise unsupported(content_type)
    return decoder(_as_text(body, content_type), content_type, signature, limit_bytes)


def decode_examples(body: bytes, content_type: MediaType, limit_bytes: int = DEFAULT_LIMIT_BYTES) -> Examples:
    """Decode a body of named features for classify and regress; raises as `decode` does."""
    decoder = EXAMPLE_DECODERS.get(content_type.type)
    if decoder is not None:
        return decoder(_as_text(body, content_type), limit_bytes)
    if content_type.type in DECODERS:
        raise UnsupportedMediaType(
            f"classify and regress take features by name: send {media.listed(EXAMPLE_DECODERS)}, "
            f"not {content_type.name}."
        )
    raise unsupported(content_type)


def _as_text(body: bytes, content_type: MediaType) -> bytes:
    return as_utf8(body, content_type) if content_type.type in _TEXT else body


def unsupported(content_type: MediaType) -> UnsupportedMediaType:
    """The error for a type that nobody reads, naming it and those that are read."""
    return media.unread(content_type, "a script", DECODERS)


def as_utf8(body: bytes, content_type: MediaType) -> bytes:
    """The body of a text format in UTF-8, from the ``charset`` that its media type names."""
    charset = content_type.parameters.get("charset", "utf-8")
    try:
        name = codecs.lookup(charset).name
    except (LookupError, ValueError):
        name = ""
    if name not in _CHARSETS:
        raise UnsupportedMediaType(f"The charset {media.shown(charset)} is not known: send UTF-8.")
    if name in _UTF8:
        return body
    try:
        return body.decode(name).encode()
    except UnicodeError as error:
        raise BadInput(
            f"The body is not in the charset {charset} that Content-Type names: {error}."
        ) from None
