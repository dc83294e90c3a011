"""The headers of a call, and the text of its status in those of the answer."""

from functools import lru_cache
from math import ceil
from urllib.parse import unquote_to_bytes

from tfs_proxy.wire.grpc_client.header_blocks import Headers, literals

SMALLER_TABLE = b"\x20"
"""Says that the encoder's table is empty from now on, to servers that have less room than the default."""

_MOST_DIGITS = 8
_UNITS = (("u", 1_000_000), ("m", 1_000), ("S", 1))


def request_block(path: str, authority: str, seconds: float, metadata: Headers) -> bytes:
    """The header block of a call with ``seconds`` to its deadline.

    It leaves every table as it is, so that a block fits each connection.
    """
    block = _common_block(path, authority, _timeout(seconds))
    return block + literals(metadata.items()) if metadata else block


@lru_cache(maxsize=256)
def _common_block(path: str, authority: str, timeout: str) -> bytes:
    fields = {
        ":method": "POST",
        ":scheme": "http",
        ":path": path,
        ":authority": authority,
        "te": "trailers",
        "content-type": "application/grpc",
        "user-agent": "tfs-proxy",
        "grpc-timeout": timeout,
    }
    return literals(fields.items())


def _timeout(seconds: float) -> str:
    """The value of grpc-timeout: at most eight digits, and a unit."""
    for unit, per_second in _UNITS:
        count = max(1, ceil(seconds * per_second))
        if count < 10**_MOST_DIGITS:
            return f"{count}{unit}"
    return f"{10**_MOST_DIGITS - 1}S"


def status_text(headers: Headers) -> str:
    """The text of the server's status, out of its percent-encoding."""
    return unquote_to_bytes(headers.get("grpc-message", "")).decode(errors="replace")
