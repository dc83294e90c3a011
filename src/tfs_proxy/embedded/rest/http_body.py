"""Request bodies as they came over HTTP to the bytes of their document: in front of the REST side's JSON."""

from tfs_proxy.errors import BadInput, PayloadTooLarge
from tfs_proxy.wire.gzip_body import gunzip

Headers = list[tuple[bytes, bytes]]
"""Names in lower case with their values."""

MAX_UNPACKED_BYTES = 100 * 1024 * 1024
"""TF Serving's limit; a small packed body could fill any memory without one."""


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
    try:
        return gunzip(body, MAX_UNPACKED_BYTES, most_members=1)
    except (BadInput, PayloadTooLarge):
        return b""
