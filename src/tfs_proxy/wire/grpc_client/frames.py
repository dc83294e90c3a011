"""HTTP/2's frames as bytes, and bytes as frames (RFC 9113, sections 4 and 6): no sockets, no state."""

import struct
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from tfs_proxy.wire.protobuf_writer import Piece

DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = (
    range(10)
)
END_STREAM, ACK, END_HEADERS, PADDED, WITH_PRIORITY = 0x1, 0x1, 0x4, 0x8, 0x20
"""Flags; what 0x1 means depends on the type of the frame."""

HEADER_TABLE_SIZE, ENABLE_PUSH, INITIAL_WINDOW_SIZE = 1, 2, 4
MAX_FRAME_SIZE, MAX_HEADER_LIST_SIZE = 5, 6
"""Settings that matter here."""

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
    """What the server sends is not HTTP/2 or not gRPC; the text is the end of a sentence about it."""


class FrameHead(NamedTuple):
    """The nine bytes before each payload, read; ``length`` is the payload's, in bytes."""

    length: int
    kind: int
    flags: int
    stream: int


def read_head(head: bytes | memoryview) -> FrameHead:
    """The first `HEAD_BYTES` bytes of a frame."""
    high, low, kind, flags, stream = _HEAD.unpack(head)
    return FrameHead(high << 16 | low, kind, flags, stream & _WITHOUT_HIGHEST_BIT)


def frame_head(length: int, kind: int, flags: int, stream: int) -> bytes:
    """The inverse of `read_head`."""
    return _HEAD.pack(length >> 16, length & 0xFFFF, kind, flags, stream)


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    """A whole frame."""
    return frame_head(len(payload), kind, flags, stream) + payload


def hello(settings: Mapping[int, int], window: int) -> bytes:
    """What a client says first, behind the `PREFACE`.

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
    """Numbers and values of a SETTINGS frame; raises BrokenFrames."""
    if len(payload) % _SETTING.size:
        raise BrokenFrames("a SETTINGS frame has an odd length")
    for number, value in _SETTING.iter_unpack(payload):
        if number == INITIAL_WINDOW_SIZE and value > MOST_WINDOW:
            raise BrokenFrames("a SETTINGS frame sets too large a window")
        if number == MAX_FRAME_SIZE and not LEAST_FRAME_BYTES <= value <= MOST_FRAME_BYTES:
            raise BrokenFrames("a SETTINGS frame sets an impossible size of frames")
        yield number, value


def read_increment(payload: bytes) -> int:
    """By how much a WINDOW_UPDATE opens a window; raises BrokenFrames."""
    increment = _one_number("WINDOW_UPDATE", payload) & _WITHOUT_HIGHEST_BIT
    if not increment:
        raise BrokenFrames("a WINDOW_UPDATE frame opens no window")
    return increment


def read_reset(payload: bytes) -> int:
    """The error code of a RST_STREAM; raises BrokenFrames."""
    return _one_number("RST_STREAM", payload)


def read_goaway(payload: bytes) -> int:
    """The last stream that the server has begun or may begin; raises BrokenFrames."""
    if len(payload) < _GOAWAY_BYTES:
        raise BrokenFrames("a GOAWAY frame is too short")
    return int(_NUMBER.unpack_from(payload)[0]) & _WITHOUT_HIGHEST_BIT


def read_ping(payload: bytes) -> bytes:
    """The bytes that the answer to a PING repeats; raises BrokenFrames."""
    if len(payload) != _PING_BYTES:
        raise BrokenFrames("a PING frame has not 8 bytes")
    return payload


def header_fragment(head: FrameHead, payload: bytes) -> bytes:
    """The part of a header block in a HEADERS frame; raises BrokenFrames."""
    start = end = 0
    if head.flags & PADDED:
        start, end = 1, payload[0] if payload else 1
    if head.flags & WITH_PRIORITY:
        start += _PRIORITY_BYTES
    if start + end > len(payload):
        raise BrokenFrames("a HEADERS frame is shorter than its padding")
    return payload[start : len(payload) - end]


def data_frames(stream: int, pieces: list[Piece], most_bytes: int, *, last: bool) -> list[Piece]:
    """Heads and payloads of DATA frames that carry ``pieces`` uncopied, each payload at most ``most_bytes``.

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
