"""Content-Encoding: decompresses bodies up to a limit, and compresses answers."""

import io
import zlib
from collections.abc import Callable, Iterator

from tfs_proxy.values.errors import BadInput, PayloadTooLarge, UnsupportedMediaType, from_client
from tfs_proxy.wire.media_types import QUALITY

GZIP = "gzip"
DEFLATE = "deflate"
LEAST_PACKED_BYTES = 1024
_GZIP_NAMES = {GZIP, "x-gzip"}
_WINDOW = {GZIP: 16 + zlib.MAX_WBITS, DEFLATE: zlib.MAX_WBITS}
"""Argument of zlib for each encoding; by deflate HTTP means zlib's own format (RFC 9110, 8.4.1.2)."""
_FASTEST = 1
_NO_ENCODINGS = {"identity", "utf-8", "utf8"}
"""Names of Content-Encoding that change nothing; a charset is none, but clients send it."""

_SLICE_BYTES = 64 * 1024
_MIN_BYTES = 18
"""Size of the smallest member: a header of ten bytes, a trailer that ends in the size (RFC 1952, 2.3)."""
_PIECE_BYTES = 1024 * 1024
_MAX_MEMBERS = 10_000

Read = Callable[[int], bytes]
Reserve = Callable[[int], None]


def decoded_body(
    body: bytes, encoding: str | None, limit_bytes: int, reserve: Reserve = lambda _: None
) -> bytes:
    """The body without its Content-Encoding: ``gzip`` or ``deflate``, once, or none (RFC 9110, 8.4).

    Raises what `gunzip` and `read_encoding` do.
    """
    name = read_encoding(encoding)
    if name is None:
        return body
    if name == DEFLATE:
        return _unpacked(unpacked_pieces(io.BytesIO(body).read, DEFLATE), DEFLATE, limit_bytes, reserve)
    return gunzip(body, limit_bytes, reserve=reserve)


def read_encoding(encoding: str | None) -> str | None:
    """`GZIP`, `DEFLATE` or None for no encoding; raises UnsupportedMediaType for any other."""
    names = [name for part in (encoding or "").split(",") if (name := part.strip().lower())]
    names = [name for name in names if name not in _NO_ENCODINGS]
    if not names or names == [DEFLATE]:
        return DEFLATE if names else None
    if len(names) > 1 or names[0] not in _GZIP_NAMES:
        shown = ", ".join(names)[:100]
        raise UnsupportedMediaType(
            f"Content-Encoding {from_client(shown)} is not read here, only gzip or deflate, once, or none."
        )
    return GZIP


def packed(body: bytes, accept_encoding: str | None) -> tuple[bytes, str | None]:
    """The body in the encoding that Accept-Encoding prefers, and its name; None if it is unchanged.

    A body under `LEAST_PACKED_BYTES` is unchanged.
    """
    encoding = _preferred(accept_encoding) if accept_encoding and len(body) >= LEAST_PACKED_BYTES else None
    if encoding is None:
        return body, None
    packer = zlib.compressobj(_FASTEST, zlib.DEFLATED, _WINDOW[encoding])
    return packer.compress(body) + packer.flush(), encoding


def _preferred(accept_encoding: str) -> str | None:
    """The first of the best quality; a wildcard does not ask for compression."""
    qualities = dict.fromkeys(_WINDOW, 0.0)
    for element in accept_encoding.split(","):
        name, _, parameter = element.partition(";")
        quality = parameter.strip().removeprefix("q=") or "1"
        if name.strip().lower() in qualities and QUALITY.fullmatch(quality):
            qualities[name.strip().lower()] = float(quality)
    best = max(qualities, key=lambda encoding: qualities[encoding])
    return best if qualities[best] > 0 else None


def gunzip(
    body: bytes, limit_bytes: int, most_members: int = _MAX_MEMBERS, reserve: Reserve = lambda _: None
) -> bytes:
    """The contents of gzip's members in ``body``, joined (RFC 1952, 2.2).

    Never holds more than ``limit_bytes`` of it; ``reserve`` is called with the size of each next piece, and
    may raise. Raises PayloadTooLarge if it would be more, and BadInput
    if it is damaged, cut off, or has more than ``most_members``.
    """
    # A body that declares too much is read on without keeping it, to see whether it is damaged.
    keeps = len(body) < _MIN_BYTES or int.from_bytes(body[-4:], "little") <= limit_bytes
    pieces = unpacked_pieces(io.BytesIO(body).read, GZIP, most_members)
    return _unpacked(pieces, GZIP, limit_bytes, reserve, keeps=keeps)


def _unpacked(
    pieces: Iterator[bytes], encoding: str, limit_bytes: int, reserve: Reserve, *, keeps: bool = True
) -> bytes:
    # A list of pieces, joined, would take the memory twice.
    unpacked = io.BytesIO()
    size = 0
    for piece in pieces:
        size += len(piece)
        if size > limit_bytes:
            raise unpacks_to_more(encoding, limit_bytes)
        if keeps:
            reserve(len(piece))
            unpacked.write(piece)
    return unpacked.getvalue()


def unpacks_to_more(encoding: str, limit_bytes: int) -> PayloadTooLarge:
    """Make the error for a body that is larger unpacked than it may be."""
    return PayloadTooLarge(f"The {encoding} body unpacks to over {limit_bytes} bytes, the limit of a body.")


def unpacked_pieces(read: Read, encoding: str, most_members: int | None = None) -> Iterator[bytes]:
    """The contents of the members of what ``read`` reads, in pieces of bounded size, some of them empty.

    Raises BadInput if it is damaged, cut off, or has more than ``most_members``.
    """
    most_members = most_members or (_MAX_MEMBERS if encoding == GZIP else 1)
    position = 0
    members = 0
    packed = read(_SLICE_BYTES)
    while packed:
        members += 1
        if members > most_members:
            raise BadInput(f"The {encoding} body has over {most_members} members: send one.")
        unpacker = zlib.decompressobj(_WINDOW[encoding])
        position += len(packed)
        try:
            while True:
                yield (piece := unpacker.decompress(packed, _PIECE_BYTES))
                if unpacker.eof:
                    break
                if not (packed or piece):
                    raise BadInput(f"The {encoding} body is cut off: it ends inside its data.")
                rest = unpacker.unconsumed_tail
                packed = rest or read(_SLICE_BYTES)
                position += 0 if rest else len(packed)
        except zlib.error as error:
            reason = str(error).rpartition(": ")[2]
            raise BadInput(
                f"The body is not {encoding}, or damaged, before byte {position}: {reason}."
            ) from None
        position -= len(unpacker.unused_data)
        packed = unpacker.unused_data or read(_SLICE_BYTES)
