"""Header lists in HPACK (RFC 7541), which the library `hpack` writes and reads."""

from collections.abc import Iterable, Mapping

from hpack import Decoder, Encoder, HPACKError
from hpack.struct import NeverIndexedHeaderTuple

from tfs_proxy.wire.grpc_client.frames import BrokenFrames

MOST_HEADER_BYTES = 1 << 18
"""The largest header list that is read, in bytes: the text of an error is in one."""

_KNOWN_BLOCKS = 64
_KNOWN_BYTES = 512

Headers = Mapping[str, str]


def literals(fields: Iterable[tuple[str, str]]) -> bytes:
    """A header block that leaves every table as it is, so that it fits each connection."""
    block: bytes = Encoder().encode(
        [NeverIndexedHeaderTuple(name.lower(), value) for name, value in fields], huffman=False
    )
    return block


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
            fields = self._decoder.decode(block, raw=True)
        except HPACKError as error:
            raise BrokenFrames(f"a header block can't be read: {error}") from error
        headers = {name.decode(errors="replace"): value.decode(errors="replace") for name, value in fields}
        # PERF: headers mostly are the same bytes again. Those mean the same as long as no block changes the
        # table.
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
