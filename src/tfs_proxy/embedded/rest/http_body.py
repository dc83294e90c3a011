"""Request bodies as they came over HTTP to the bytes of their document: in front of the REST side's JSON."""

import zlib

Headers = list[tuple[bytes, bytes]]
"""Names in lower case with their values."""

MAX_UNPACKED_BYTES = 100 * 1024 * 1024
"""TF Serving's limit; a small packed body could fill any memory without one."""

_GZIP = 16 + zlib.MAX_WBITS


def is_packed(headers: Headers) -> bool:
    """Whether a header says that the body is in gzip's format."""
    for name, value in headers:
        if name == b"content-encoding":
            return b"gzip" in value.lower()
    return False


def unpacked(body: bytes) -> bytes:
    """The bytes of a packed body: none at all if it is not one whole packed document within the limit.

    So does TF Serving, whose answer then is that the document is empty.
    """
    reader = zlib.decompressobj(_GZIP)
    try:
        plain = reader.decompress(body, MAX_UNPACKED_BYTES)
    except zlib.error:
        return b""
    return plain if reader.eof and not reader.unused_data else b""
