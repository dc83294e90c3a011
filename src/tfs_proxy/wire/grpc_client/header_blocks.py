"""The headers of a call and of its answer in HPACK (RFC 7541), which the library `hpack` writes and reads."""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from math import ceil
from urllib.parse import unquote_to_bytes

from hpack import Decoder, Encoder, HPACKError
from hpack.struct import NeverIndexedHeaderTuple

from tfs_proxy.wire.grpc_client.frames import BrokenFrames

MOST_HEADER_BYTES = 1 << 18
"""The largest header list that is read, in bytes: the text of an error is in one."""

SMALLER_TABLE = b"\x20"
"""Says that the encoder's table is empty from now on, to servers that have less room than the default."""

_MOST_DIGITS = 8
_UNITS = (("u", 1_000_000), ("m", 1_000), ("S", 1))
_KNOWN_BLOCKS = 64
_KNOWN_BYTES = 512

Headers = Mapping[str, str]


def request_block(path: str, authority: str, seconds: float, metadata: Headers) -> bytes:
    """The header block of a call with ``seconds`` to its deadline.

    It leaves every table as it is, so that a block fits each connection.
    """
    block = _common_block(path, authority, _timeout(seconds))
    return block + _literals(metadata.items()) if metadata else block


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
    return _literals(fields.items())


def _literals(fields: Iterable[tuple[str, str]]) -> bytes:
    block: bytes = Encoder().encode(
        [NeverIndexedHeaderTuple(name.lower(), value) for name, value in fields], huffman=False
    )
    return block


def _timeout(seconds: float) -> str:
    """The value of grpc-timeout: at most eight digits, and a unit."""
    for unit, per_second in _UNITS:
        count = max(1, ceil(seconds * per_second))
        if count < 10**_MOST_DIGITS:
            return f"{count}{unit}"
    return f"{10**_MOST_DIGITS - 1}S"


class BlockReader:
    """Reads the header blocks of one connection, in their order."""

    def __init__(self) -> None:
        self._decoder = Decoder(max_header_list_size=MOST_HEADER_BYTES)
        self._known: dict[bytes, Headers] = {}

    def read(self, block: bytes) -> Headers:
        """Headers by name, of several alike the last; raises BrokenFrames."""
        known = self._known.get(block)
        if known is not None:
            return known
        first, length, size = self._table_state()
        try:
            headers = {str(name): str(value) for name, value in self._decoder.decode(block)}
        except HPACKError as error:
            raise BrokenFrames(f"a header block can't be read: {error}") from error
        # PERF: an answer's headers mostly are the same bytes again. Those mean the same as long as no block
        # changes the table.
        first_now, length_now, size_now = self._table_state()
        changed = first_now is not first or (length_now, size_now) != (length, size)
        if changed or len(self._known) >= _KNOWN_BLOCKS:
            self._known.clear()
        elif len(block) <= _KNOWN_BYTES:
            self._known[block] = headers
        return headers

    def _table_state(self) -> tuple[object, int, int]:
        """Differs after each change: an entry is added in front, and entries leave at the end."""
        table = self._decoder.header_table
        entries = table.dynamic_entries
        return (entries[0] if entries else None, len(entries), table.maxsize)


def status_text(headers: Headers) -> str:
    """The text of the server's status, out of its percent-encoding."""
    return unquote_to_bytes(headers.get("grpc-message", "")).decode(errors="replace")
