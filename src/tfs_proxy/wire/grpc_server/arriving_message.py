"""The message of one call as it arrives in parts: between `connection` and `calls`."""

import numpy as np

from tfs_proxy.wire.grpc_codes import GrpcCode
from tfs_proxy.wire.grpc_server.statuses import Status
from tfs_proxy.wire.http2.messages import MOST_MESSAGE_BYTES, PREFIX
from tfs_proxy.wire.protobuf_writer import Piece

_ONE_MESSAGE = Status(GrpcCode.UNIMPLEMENTED, "This method takes exactly one message.")


class ArrivingMessage:
    """Exactly one message; ``refusal`` says why it can't be taken."""

    __slots__ = ("_message", "_prefix", "_room", "is_packed", "length", "received", "refusal")

    def __init__(self) -> None:
        self._prefix = b""
        self._room: memoryview | None = None
        self._message: Piece | None = None
        self.is_packed = False
        self.length = 0
        self.received = 0
        self.refusal: Status | None = None

    def take(self, part: memoryview) -> None:
        """Copy the next part."""
        if self._message is None:
            prefix = self._prefix + part[: PREFIX.size - len(self._prefix)]
            part = part[len(prefix) - len(self._prefix) :]
            self._prefix = prefix
            if len(prefix) < PREFIX.size:
                return
            self._begin(part)
            if self.received:
                return
        if not part or self.refusal is not None:
            return
        room = self._room
        if room is None or len(part) > len(room):
            self.refusal = _ONE_MESSAGE
            return
        room[: len(part)] = part
        self.filled(len(part))

    def room(self, most: int) -> memoryview | None:
        """Where the next ``most`` bytes, or fewer, belong; None if that is not known."""
        if self._room is None or self.refusal is not None or most > len(self._room):
            return None
        return self._room[:most]

    def filled(self, count: int) -> None:
        """Count bytes that stand in `room`."""
        self.received += count
        if self._room is not None:
            self._room = self._room[count:]

    @property
    def wants_more(self) -> bool:
        """Whether its length is known and some of it has not come."""
        return self._message is not None and self.received < self.length and self.refusal is None

    def whole(self) -> Piece | None:
        """The message, read-only; None with ``refusal`` set if it is not whole."""
        if self.refusal is None and (self._message is None or self.received < self.length):
            self.refusal = _ONE_MESSAGE
        return None if self.refusal is not None else self._message

    def _begin(self, part: memoryview) -> None:
        packed, self.length = PREFIX.unpack(self._prefix)
        self.is_packed = bool(packed)
        if packed > 1 or self.length > MOST_MESSAGE_BYTES:
            self.refusal = Status(
                GrpcCode.RESOURCE_EXHAUSTED, f"A message of {self.length} bytes is too large."
            )
            self._message = b""
        elif len(part) == self.length:
            # PERF: a small message, all of which is there.
            self._message, self.received, self._room = bytes(part), self.length, None
        else:
            self._allocate()

    def _allocate(self) -> None:
        # NOTE: this takes address space alone: memory is taken by the bytes that come, whatever is announced.
        try:
            self._room = np.empty(self.length, np.uint8).data
            self._message = self._room.toreadonly()
        except MemoryError:
            self.refusal = Status(
                GrpcCode.RESOURCE_EXHAUSTED, f"No memory for a message of {self.length} bytes."
            )
            self._message = b""
