"""What has been received of a connection and not been read yet: a small buffer before the socket."""

from collections.abc import Callable

BUFFER_BYTES = 1 << 14
"""More are asked for only if they are wanted to the last."""


class ReceiveBuffer:
    """Bytes in order, from ``receive``, which fills the beginning of a view and returns how many bytes came.

    ``receive`` raises if none come; what is half read then is lost.
    """

    __slots__ = ("_end", "_receive", "_start", "_view")

    def __init__(self, receive: Callable[[memoryview], int]) -> None:
        self._receive = receive
        self._view = memoryview(bytearray(BUFFER_BYTES))
        self._start = self._end = 0

    def read(self, count: int) -> bytes:
        """The next ``count`` bytes."""
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
        """Fill ``target``: what is not in the buffer comes straight from the connection."""
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
