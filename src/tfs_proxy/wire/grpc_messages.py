"""The message of an outgoing call, and its answer: headers, message, status."""

import struct
from collections.abc import Callable, Sequence

import numpy as np
from msgspec import Struct

from tfs_proxy.values.errors import AnswerTooLarge
from tfs_proxy.wire.error_body import MODEL_SERVER, answer_too_large
from tfs_proxy.wire.grpc_codes import GrpcCode
from tfs_proxy.wire.grpc_frames import (
    DEFAULT_WINDOW,
    INITIAL_WINDOW_SIZE,
    LEAST_FRAME_BYTES,
    MAX_FRAME_SIZE,
    MOST_WINDOW,
    BlockReader,
    BrokenFrames,
    Headers,
    status_text,
)
from tfs_proxy.wire.media_types import GRPC
from tfs_proxy.wire.protobuf_writer import Piece

BUFFER_BYTES = 1 << 14
"""Size from which bytes are read directly into their place; shorter reads fill a buffer."""


class ReceiveBuffer:
    """Buffered bytes from ``receive``, which fills the beginning of a view and returns a number of bytes.

    ``receive`` raises if none come; bytes read so far are lost then.
    """

    __slots__ = ("_end", "_receive", "_start", "_view")

    def __init__(self, receive: Callable[[memoryview], int]) -> None:
        self._receive = receive
        self._view = memoryview(bytearray(BUFFER_BYTES))
        self._start = self._end = 0

    def read(self, count: int) -> bytes:
        if count > BUFFER_BYTES:
            large = bytearray(count)
            self.read_into(memoryview(large))
            return bytes(large)
        if self._end - self._start < count:
            self._fill(count)
        start = self._start
        self._start += count
        return bytes(self._view[start : start + count])

    def read_into(self, target: memoryview) -> None:
        """Fills ``target``; bytes that are not in the buffer come directly from the connection."""
        at = min(len(target), self._end - self._start)
        target[:at] = self._view[self._start : self._start + at]
        self._start += at
        while at < len(target):
            at += self._receive(target[at:])

    def _fill(self, count: int) -> None:
        unread = self._end - self._start
        if self._start + count > BUFFER_BYTES or not unread:
            self._view[:unread] = bytes(self._view[self._start : self._end])
            self._start, self._end = 0, unread
        while self._end - self._start < count:
            self._end += self._receive(self._view[self._end :])


class SendWindows:
    """Limits in bytes for the connection, the present stream, and one frame."""

    __slots__ = ("_connection", "_initial", "_stream", "most_frame_bytes")

    def __init__(self) -> None:
        self._connection = self._initial = self._stream = DEFAULT_WINDOW
        self.most_frame_bytes = LEAST_FRAME_BYTES

    def begin_stream(self) -> None:
        """Starts a window for the next call."""
        self._stream = self._initial

    def available(self) -> int:
        return max(0, min(self._connection, self._stream))

    def spend(self, count: int) -> None:
        self._connection -= count
        self._stream -= count

    def set(self, setting: int, value: int) -> None:
        """Applies a setting of the server; unknown ones change nothing."""
        if setting == MAX_FRAME_SIZE:
            self.most_frame_bytes = value
        elif setting == INITIAL_WINDOW_SIZE:
            self._stream = _opened(self._stream, value - self._initial)
            self._initial = value

    def open(self, increment: int, *, stream: bool) -> None:
        """Counts a WINDOW_UPDATE of the present stream or of the connection. Raises BrokenFrames."""
        if stream:
            self._stream = _opened(self._stream, increment)
        else:
            self._connection = _opened(self._connection, increment)


def _opened(window: int, increment: int) -> int:
    """A window after an increment; it may have been negative. Raises BrokenFrames."""
    if window + increment > MOST_WINDOW:
        raise BrokenFrames("it opens a window further than HTTP/2 allows")
    return window + increment


PREFIX = struct.Struct(">BL")

MOST_MESSAGE_BYTES = 2**31 - 1
"""Limit of protobuf."""

_COPIED_BYTES = 1 << 16
"""Size up to which one copy costs less than memory of its own."""


class OutgoingMessage:
    """A message in pieces that are not copied; ``remaining`` bytes are not taken yet."""

    __slots__ = ("_at", "_next", "_pieces", "remaining")

    def __init__(self, message: Sequence[Piece]) -> None:
        length = sum(map(len, message))
        prefix = PREFIX.pack(0, length)
        self._pieces: list[Piece] = (
            [b"".join([prefix, *message])] if length <= _COPIED_BYTES else [prefix, *message]
        )
        self._next = self._at = 0
        self.remaining = PREFIX.size + length

    def take(self, count: int) -> list[Piece]:
        self.remaining -= count
        taken: list[Piece] = []
        while count:
            piece = self._pieces[self._next]
            part = memoryview(piece)[self._at : self._at + count]
            count -= len(part)
            self._at += len(part)
            if self._at == len(piece):
                self._next, self._at = self._next + 1, 0
            taken.append(part)
        return taken


class IncomingMessage:
    """An answer's message of at most ``most_bytes``, from the payloads of DATA frames."""

    __slots__ = ("_message", "_most_bytes", "_prefix", "_room")

    def __init__(self, most_bytes: int = MOST_MESSAGE_BYTES) -> None:
        self._most_bytes = most_bytes
        self._prefix = b""
        self._room: memoryview | None = None
        self._message: Piece | None = None

    def take(self, source: ReceiveBuffer, count: int) -> None:
        """Reads the next ``count`` bytes.

        Raises BrokenFrames if they are not one uncompressed message, and AnswerTooLarge.
        """
        if self._room is None and self._message is None:
            part = source.read(min(count, PREFIX.size - len(self._prefix)))
            self._prefix += part
            count -= len(part)
            if len(self._prefix) == PREFIX.size:
                self._begin()
        if not count:
            return
        if self._room is None or count > len(self._room):
            raise BrokenFrames("it has more than one message, or a message longer than it says")
        source.read_into(self._room[:count])
        self._room = self._room[count:]

    def whole(self) -> Piece:
        """The message, read-only. Raises BrokenFrames if it has not come, or not to its end."""
        if self._message is None:
            raise BrokenFrames("it has no message")
        if self._room is None or len(self._room):
            raise BrokenFrames("its message breaks off")
        return self._message

    def _begin(self) -> None:
        compressed, length = PREFIX.unpack(self._prefix)
        if compressed:
            raise BrokenFrames("its message is compressed, which nobody asked for")
        if length > self._most_bytes:
            raise AnswerTooLarge(answer_too_large(MODEL_SERVER, self._most_bytes))
        # NOTE: this only reserves addresses: memory is used by bytes that come, whatever length is announced.
        self._room = np.empty(length, np.uint8).data
        self._message = self._room.toreadonly()


_OK = "200"


class CallAnswer(Struct, frozen=True):
    """The status of a call with its text, and the message if it is OK, else nothing."""

    code: GrpcCode
    text: str
    message: Piece = b""


class AnswerReader:
    """Takes headers, data and trailers in their order; ``ended`` says whether the answer is complete."""

    __slots__ = ("_blocks", "_headers", "_message", "_trailers", "ended")

    def __init__(self, blocks: BlockReader, most_bytes: int) -> None:
        self._blocks = blocks
        self._message = IncomingMessage(most_bytes)
        self._headers: Headers | None = None
        self._trailers: Headers | None = None
        self.ended = False

    def take_headers(self, block: bytes) -> None:
        """Reads a header block: the first, or the trailers. Raises BrokenFrames."""
        headers = self._blocks.read(block)
        if self._trailers is not None:
            raise BrokenFrames("it has trailers twice")
        if self._headers is not None:
            self._trailers = headers
            return
        status = headers.get(":status", "")
        if len(status) == len(_OK) and status.startswith("1"):
            return  # not the final answer
        if status != _OK or not headers.get("content-type", "").startswith(GRPC):
            raise BrokenFrames(f"it has HTTP's status {status[:10] or 'missing'}, or another type")
        self._headers = headers

    def take_data(self, source: ReceiveBuffer, count: int) -> None:
        """Reads ``count`` bytes of the message. Raises BrokenFrames and AnswerTooLarge."""
        if self._headers is None or self._trailers is not None:
            raise BrokenFrames("its data is not between headers and trailers")
        self._message.take(source, count)

    def end(self) -> None:
        """End the message: the server's side of the stream has ended."""
        self.ended = True

    def answer(self) -> CallAnswer:
        """The whole answer. Raises BrokenFrames if there is no status, or no message with an OK."""
        headers = self._headers if self._trailers is None else self._trailers
        status = (headers or {}).get("grpc-status", "")
        if not (status.isascii() and status.isdigit() and len(status) <= 2):  # noqa: PLR2004
            raise BrokenFrames("it has no status of gRPC")
        code = GrpcCode(int(status)) if int(status) in _CODES else GrpcCode.UNKNOWN
        if code is GrpcCode.OK:
            return CallAnswer(code, "", self._message.whole())
        return CallAnswer(code, status_text(headers or {}))


_CODES = frozenset(GrpcCode)
