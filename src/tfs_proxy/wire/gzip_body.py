"""Content-Encoding: a packed body -> the body, no larger than the limit; the step before every format."""

import zlib
from collections.abc import Iterator

from tfs_proxy.errors import BadInput, PayloadTooLarge, UnsupportedMediaType

_GZIP_NAMES = {"gzip", "x-gzip"}
_GZIP = 16 + zlib.MAX_WBITS
_SLICE_BYTES = 64 * 1024
_MIN_BYTES = 18
"""A header of ten bytes and a trailer of eight, of which the last four are the size (RFC 1952, 2.3)."""
_PIECE_BYTES = 1024 * 1024
_MAX_MEMBERS = 10_000


def unpacked(body: bytes, encoding: str | None, limit_bytes: int) -> bytes:
    """The body without its Content-Encoding: ``gzip``, once, or none (RFC 9110, 8.4).

    Never holds more than ``limit_bytes`` of it. Raises PayloadTooLarge where it would be more, BadInput
    where it is damaged or cut off, UnsupportedMediaType for other encodings.
    """
    names = [name for each in (encoding or "").split(",") if (name := each.strip().lower())]
    names = [name for name in names if name != "identity"]
    if not names:
        return body
    if len(names) > 1 or names[0] not in _GZIP_NAMES:
        shown = ", ".join(names)[:100]
        raise UnsupportedMediaType(f"Content-Encoding {shown} is not read here, only gzip, once, or none.")
    # NOTE: of a body that declares too much nothing is kept; it is still read on, to see if it is damaged.
    kept = len(body) < _MIN_BYTES or int.from_bytes(body[-4:], "little") <= limit_bytes
    pieces: list[bytes] = []
    size = 0
    for piece in _gunzip(body):
        size += len(piece)
        if size > limit_bytes:
            raise PayloadTooLarge(f"The gzip body unpacks to over {limit_bytes} bytes, the limit of a body.")
        if kept:
            pieces.append(piece)
    return b"".join(pieces)


def _gunzip(body: bytes) -> Iterator[bytes]:
    """What is in each member (RFC 1952, 2.2), in pieces of bounded size."""
    place, members = 0, 0
    while place < len(body):
        members += 1
        if members > _MAX_MEMBERS:
            raise BadInput(f"The gzip body has over {_MAX_MEMBERS} members: send one.")
        unpacker = zlib.decompressobj(_GZIP)
        try:
            while not unpacker.eof:
                rest = unpacker.unconsumed_tail
                packed = rest or body[place : place + _SLICE_BYTES]
                place += 0 if rest else len(packed)
                yield (piece := unpacker.decompress(packed, _PIECE_BYTES))
                if not (packed or piece or unpacker.eof):
                    raise BadInput("The gzip body is cut off: it ends inside its data.")
        except zlib.error as error:
            reason = str(error).rpartition(": ")[2]
            raise BadInput(f"The body is no gzip, or damaged, before byte {place}: {reason}.") from None
        place -= len(unpacker.unused_data)
