"""The parts of HTTP/2 frames and header blocks that a unary gRPC call needs (RFC 9113, RFC 7541)."""

import struct
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from math import ceil
from typing import NamedTuple
from urllib.parse import unquote_to_bytes

from hpack import Decoder, Encoder, HPACKError
from hpack.struct import NeverIndexedHeaderTuple

from tfs_proxy.wire.media_types import GRPC
from tfs_proxy.wire.protobuf_writer import Piece

DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = (
    range(10)
)
END_STREAM, ACK, END_HEADERS, PADDED, WITH_PRIORITY = 0x1, 0x1, 0x4, 0x8, 0x20
"""Flags; the meaning of 0x1 depends on the type of the frame."""

HEADER_TABLE_SIZE, ENABLE_PUSH, INITIAL_WINDOW_SIZE = 1, 2, 4
MAX_FRAME_SIZE, MAX_HEADER_LIST_SIZE = 5, 6

REFUSED_STREAM, CANCEL = 7, 8
"""Error codes of RST_STREAM; REFUSED_STREAM says that the call had not begun."""

HEAD_BYTES = 9
LEAST_FRAME_BYTES = 16_384
MOST_FRAME_BYTES = 16_777_215
DEFAULT_WINDOW = 65_535
MOST_WINDOW = 2**31 - 1
MOST_STREAM = 2**31 - 1

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_HEAD = struct.Struct(">BHBBL")
_SETTING = struct.Struct(">HL")
_NUMBER = struct.Struct(">L")
_PRIORITY_BYTES = 5
_PING_BYTES = 8
_GOAWAY_BYTES = 8
_WITHOUT_HIGHEST_BIT = 0x7FFFFFFF


class BrokenFrames(Exception):
    """The server does not send HTTP/2 or gRPC; the text is the end of a sentence about it."""


class FrameHead(NamedTuple):
    """The nine bytes before each payload; ``length`` is the payload's, in bytes."""

    length: int
    kind: int
    flags: int
    stream: int


def read_head(head: bytes | memoryview) -> FrameHead:
    high, low, kind, flags, stream = _HEAD.unpack(head)
    return FrameHead(high << 16 | low, kind, flags, stream & _WITHOUT_HIGHEST_BIT)


def frame_head(length: int, kind: int, flags: int, stream: int) -> bytes:
    """The inverse of `read_head`."""
    return _HEAD.pack(length >> 16, length & 0xFFFF, kind, flags, stream)


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return frame_head(len(payload), kind, flags, stream) + payload


def hello(settings: Mapping[int, int], window: int) -> bytes:
    """A client's first bytes, after the `PREFACE`.

    Its settings, and a receive window of ``window`` bytes for the connection.
    """
    payload = b"".join(_SETTING.pack(number, value) for number, value in settings.items())
    return frame(SETTINGS, 0, 0, payload) + window_update(0, window - DEFAULT_WINDOW)


def window_update(stream: int, increment: int) -> bytes:
    """A frame that lets the server send ``increment`` more bytes; stream 0 is the whole connection."""
    return frame(WINDOW_UPDATE, 0, stream, _NUMBER.pack(increment))


def header_frames(stream: int, block: bytes, most_bytes: int, flags: int = 0) -> bytes:
    """A header block in frames with payloads of at most ``most_bytes``, the first of them with ``flags``."""
    if len(block) <= most_bytes:
        return frame(HEADERS, flags | END_HEADERS, stream, block)
    parts = [block[start : start + most_bytes] for start in range(0, len(block), most_bytes)]
    return b"".join(
        frame(
            CONTINUATION if number else HEADERS,
            (0 if number else flags) | (END_HEADERS if number == len(parts) - 1 else 0),
            stream,
            part,
        )
        for number, part in enumerate(parts)
    )


def read_settings(payload: bytes) -> Iterator[tuple[int, int]]:
    """Numbers and values of a SETTINGS frame. Raises BrokenFrames."""
    if len(payload) % _SETTING.size:
        raise BrokenFrames("a SETTINGS frame has an odd length")
    for number, value in _SETTING.iter_unpack(payload):
        if number == INITIAL_WINDOW_SIZE and value > MOST_WINDOW:
            raise BrokenFrames("a SETTINGS frame sets too large a window")
        if number == MAX_FRAME_SIZE and not LEAST_FRAME_BYTES <= value <= MOST_FRAME_BYTES:
            raise BrokenFrames("a SETTINGS frame sets an impossible size of frames")
        yield number, value


def read_increment(payload: bytes) -> int:
    """The increment of a WINDOW_UPDATE. Raises BrokenFrames."""
    increment = _one_number("WINDOW_UPDATE", payload) & _WITHOUT_HIGHEST_BIT
    if not increment:
        raise BrokenFrames("a WINDOW_UPDATE frame opens no window")
    return increment


def read_reset(payload: bytes) -> int:
    """The error code of a RST_STREAM. Raises BrokenFrames."""
    return _one_number("RST_STREAM", payload)


def read_goaway(payload: bytes) -> int:
    """The last stream that the server has begun or may begin. Raises BrokenFrames."""
    if len(payload) < _GOAWAY_BYTES:
        raise BrokenFrames("a GOAWAY frame is too short")
    return int(_NUMBER.unpack_from(payload)[0]) & _WITHOUT_HIGHEST_BIT


def read_ping(payload: bytes) -> bytes:
    """The bytes that the answer to a PING repeats. Raises BrokenFrames."""
    if len(payload) != _PING_BYTES:
        raise BrokenFrames("a PING frame has not 8 bytes")
    return payload


def header_fragment(head: FrameHead, payload: bytes) -> bytes:
    """The part of a header block in a HEADERS frame. Raises BrokenFrames."""
    start = end = 0
    if head.flags & PADDED:
        start, end = 1, payload[0] if payload else 1
    if head.flags & WITH_PRIORITY:
        start += _PRIORITY_BYTES
    if start + end > len(payload):
        raise BrokenFrames("a HEADERS frame is shorter than its padding")
    return payload[start : len(payload) - end]


def data_frames(stream: int, pieces: list[Piece], most_bytes: int, *, last: bool) -> list[Piece]:
    """Heads and payloads of DATA frames with ``pieces`` uncopied, each payload at most ``most_bytes``.

    ``last`` says that the request ends with them.
    """
    remaining = sum(map(len, pieces))
    buffers: list[Piece] = []
    space = 0
    for piece in pieces:
        view = memoryview(piece)
        while view:
            if not space:
                space = min(most_bytes, remaining)
                remaining -= space
                buffers.append(frame_head(space, DATA, END_STREAM if last and not remaining else 0, stream))
            part, view = view[:space], view[space:]
            space -= len(part)
            buffers.append(part)
    return buffers


def _one_number(name: str, payload: bytes) -> int:
    if len(payload) != _NUMBER.size:
        raise BrokenFrames(f"a {name} frame has not 4 bytes")
    return int(_NUMBER.unpack(payload)[0])


MOST_HEADER_BYTES = 1 << 18
"""Limit of a header list in bytes; it contains the text of an error."""

_KNOWN_BLOCKS = 64
_KNOWN_BYTES = 512

Headers = Mapping[str, str]


def literals(fields: Iterable[tuple[str, str]]) -> bytes:
    """A header block that changes no table, so that it fits each connection."""
    block: bytes = Encoder().encode(
        [NeverIndexedHeaderTuple(name.lower(), value) for name, value in fields], huffman=False
    )
    return block


class BlockReader:
    """Reader of the header blocks of one connection, in their order."""

    def __init__(self) -> None:
        self._decoder = Decoder(max_header_list_size=MOST_HEADER_BYTES)
        self._known: dict[bytes, Headers] = {}

    def read(self, block: bytes) -> Headers:
        """Headers by name; the last of several with one name. Raises BrokenFrames."""
        known = self._known.get(block)
        if known is not None:
            return known
        first, length, size = self._table_state()
        try:
            fields = self._decoder.decode(block, raw=True)
        except HPACKError as error:
            raise BrokenFrames(f"a header block can't be read: {error}") from error
        headers = {name.decode(errors="replace"): value.decode(errors="replace") for name, value in fields}
        # Headers mostly are the same bytes again. Those mean the same as long as no block changes the
        # table.
        first_now, length_now, size_now = self._table_state()
        changed = first_now is not first or (length_now, size_now) != (length, size)
        if changed or len(self._known) >= _KNOWN_BLOCKS:
            self._known.clear()
        elif len(block) <= _KNOWN_BYTES:
            self._known[block] = headers
        return headers

    def _table_state(self) -> tuple[object, int, int]:
        """Value that differs after each change: entries are added in front and removed at the end."""
        table = self._decoder.header_table
        entries = table.dynamic_entries
        return (entries[0] if entries else None, len(entries), table.maxsize)


SMALLER_TABLE = b"\x20"
"""Tells servers with smaller tables than the default that the encoder's is empty from now on."""

_MOST_DIGITS = 8
_UNITS = (("u", 1_000_000), ("m", 1_000), ("S", 1))


def request_block(path: str, authority: str, seconds: float, metadata: Headers) -> bytes:
    """The header block of a call with ``seconds`` to its deadline.

    It changes no table, so that a block fits each connection.
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
        "content-type": GRPC,
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
    """The text of the server's status without its percent-encoding."""
    return unquote_to_bytes(headers.get("grpc-message", "")).decode(errors="replace")
