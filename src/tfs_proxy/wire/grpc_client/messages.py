"""gRPC's messages, out and in: five bytes of prefix, then the message (gRPC over HTTP/2)."""

import struct
from collections.abc import Sequence

import numpy as np

from tfs_proxy.wire.grpc_client.frames import BrokenFrames
from tfs_proxy.wire.grpc_client.receive_buffer import ReceiveBuffer
from tfs_proxy.wire.protobuf_writer import Piece

PREFIX = struct.Struct(">BL")
"""Whether the message is compressed, and its length in bytes."""

_MOST_MESSAGE_BYTES = 2**31 - 1
"""What a protobuf message may have."""

_COPIED_BYTES = 1 << 16
"""Up to this size one copy costs less than memory of its own."""


class OutgoingMessage:
    """A message in pieces that stay where they are; ``remaining`` are the bytes not taken yet."""

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
        """The next ``count`` bytes."""
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
    """An answer's message, out of the payloads of DATA frames."""

    __slots__ = ("_message", "_prefix", "_room")

    def __init__(self) -> None:
        self._prefix = b""
        self._room: memoryview | None = None
        self._message: Piece | None = None

    def take(self, source: ReceiveBuffer, count: int) -> None:
        """Read the next ``count`` bytes; raises BrokenFrames if they are not one uncompressed message."""
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
        """The message, read-only; raises BrokenFrames if it has not come, or not to its end."""
        if self._message is None:
            raise BrokenFrames("it has no message")
        if self._room is None or len(self._room):
            raise BrokenFrames("its message breaks off")
        return self._message

    def _begin(self) -> None:
        compressed, length = PREFIX.unpack(self._prefix)
        if compressed:
            raise BrokenFrames("its message is compressed, which nobody asked for")
        if length > _MOST_MESSAGE_BYTES:
            raise BrokenFrames(f"its message would have {length} bytes")
        # NOTE: this takes address space alone: memory is taken by the bytes that come, whatever is announced.
        self._room = np.empty(length, np.uint8).data
        self._message = self._room.toreadonly()
