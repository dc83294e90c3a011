"""A request's body -> `Batch`: the entry to every input format, chosen by media type."""

import codecs
from collections.abc import Callable, Mapping

from tfs_proxy.errors import BadInput, UnsupportedMediaType
from tfs_proxy.payload import media
from tfs_proxy.payload.batch import Batch, Examples
from tfs_proxy.payload.csv_records import decode_csv
from tfs_proxy.payload.json_documents import documents
from tfs_proxy.payload.json_records import decode_json, decode_lines, examples_of, records_of
from tfs_proxy.payload.media import MediaType
from tfs_proxy.signature import Signature

Decoder = Callable[[bytes, MediaType, Signature, int], Batch]

DEFAULT_LIMIT_BYTES = 100 * 1024 * 1024
"""What a body may unpack to where a caller names no limit of its own."""

_UTF8 = frozenset({"utf-8", "ascii"})
_CHARSETS = _UTF8 | {"iso8859-1", "iso8859-15", "cp1252", "utf-16", "utf-16-le", "utf-16-be"}


def _csv(body: bytes, content_type: MediaType, signature: Signature, _: int) -> Batch:
    header = content_type.parameters.get("header", "absent").lower()
    if header not in {"present", "absent"}:
        raise UnsupportedMediaType(
            f"text/csv; header={media.shown(header)} is not understood: it is present or absent (RFC 4180)."
        )
    return decode_csv(body, signature, header=header == "present")


DECODERS: Mapping[str, Decoder] = {
    media.JSON: lambda body, _, signature, __: decode_json(body, signature),
    media.JSON_LINES: lambda body, _, signature, __: decode_lines(body, signature),
    media.JSONS: lambda body, _, signature, __: decode_lines(body, signature),
    media.CSV: _csv,
}
"""How each media type is read for predict."""


def decode(
    body: bytes, content_type: MediaType, signature: Signature, limit_bytes: int = DEFAULT_LIMIT_BYTES
) -> Batch:
    """Decode a body for predict: arrays by input name, typed by the signature.

    ``limit_bytes`` is what it may unpack to, where it is packed.
    Raises BadInput saying where the body is wrong, UnsupportedMediaType for a type that is not in
    `DECODERS` or a charset that is not known.
    """
    decoder = DECODERS.get(content_type.type)
    if decoder is None:
        raise unsupported(content_type)
    return decoder(as_utf8(body, content_type), content_type, signature, limit_bytes)


def decode_examples(body: bytes, content_type: MediaType) -> Examples:
    """Decode a body of feature dicts for classify and regress: JSON and JSON lines alone."""
    if content_type.type == media.JSON:
        return examples_of(records_of(documents(as_utf8(body, content_type))))
    if content_type.type in {media.JSON_LINES, media.JSONS}:
        return examples_of(documents(as_utf8(body, content_type)))
    if content_type.type in DECODERS:
        raise UnsupportedMediaType(
            f"classify and regress take features by name: send {media.JSON} or {media.JSON_LINES} objects, "
            f"not {content_type.name}."
        )
    raise unsupported(content_type)


def unsupported(content_type: MediaType) -> UnsupportedMediaType:
    """The error for a type that nobody reads, naming it and those that are read."""
    return UnsupportedMediaType(
        f"Content-Type {media.shown(content_type.name)} is not read here without a script, "
        f"only {media.listed(DECODERS)}."
    )


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
