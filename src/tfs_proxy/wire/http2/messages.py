"""A gRPC message on its way out: five bytes of prefix, then the message (gRPC over HTTP/2)."""

import struct
from collections.abc import Sequence

from tfs_proxy.wire.protobuf_writer import Piece

PREFIX = struct.Struct(">BL")
"""Whether the message is compressed, and its length in bytes."""

MOST_MESSAGE_BYTES = 2**31 - 1
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
