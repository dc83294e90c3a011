"""Cuts what arrives on a connection into frames: the step below `connection`."""

import asyncio
from abc import abstractmethod

from tfs_proxy.wire.http2 import frames
from tfs_proxy.wire.http2.frames import BrokenFrames, FrameHead
from tfs_proxy.wire.http2.header_blocks import MOST_HEADER_BYTES

SCRATCH_BYTES = 1 << 18
_DIRECT_BYTES = 1 << 14
"""PERF: so much of a message is received where it stays; a copy of less costs less than one more turn."""
_MOST_CONTROL_BYTES = 1 << 14
_LONG = frozenset({frames.HEADERS, frames.CONTINUATION})


class FrameProtocol(asyncio.BufferedProtocol):
    """Gives the frames of one connection to the methods below, those of DATA part by part.

    ``scratch`` is memory that all connections of an event loop share: what comes is looked at, or kept
    elsewhere, before another connection reads.
    """

    def __init__(self, scratch: memoryview) -> None:
        self._scratch = scratch
        self._kept = bytearray()
        self._needed = len(frames.PREFACE)
        self.is_greeted = self._is_direct = self._is_done = False
        self._data: FrameHead | None = None
        self._payload_left = self._padding_left = 0

    @abstractmethod
    def on_frame(self, head: FrameHead, payload: bytes) -> None:
        """Take a frame that is not DATA."""

    @abstractmethod
    def on_data_head(self, head: FrameHead, padding: int) -> None:
        """Take the head of a DATA frame, of whose length ``padding`` bytes are none of the message."""

    @abstractmethod
    def on_data(self, part: memoryview) -> None:
        """Take the next part of its payload, which is there until this returns."""

    @abstractmethod
    def on_data_end(self, head: FrameHead) -> None:
        """Take its end."""

    @abstractmethod
    def data_room(self, most: int) -> memoryview | None:
        """Where the next ``most`` bytes, or fewer, belong; None if that is not known."""

    @abstractmethod
    def on_data_filled(self, count: int) -> None:
        """Count bytes that stand in what `data_room` gave."""

    @abstractmethod
    def on_broken(self, error: BrokenFrames) -> None:
        """Take that the rest can't be read."""

    def stop_reading(self) -> None:
        """Look at nothing that comes from now on."""
        self._is_done = True

    def get_buffer(self, _sizehint: int) -> memoryview:
        """Where the next bytes go."""
        room = self.data_room(self._payload_left) if self._payload_left >= _DIRECT_BYTES else None
        self._is_direct = room is not None
        return self._scratch if room is None else room

    def buffer_updated(self, count: int) -> None:
        """Read what came."""
        if self._is_done:
            return
        try:
            if self._is_direct:
                self._fill(count)
            elif not self._kept:
                self._read(self._scratch[:count])
            else:
                self._kept += self._scratch[:count]
                if len(self._kept) >= self._needed:
                    whole, self._kept = self._kept, bytearray()
                    self._read(memoryview(whole))
        except BrokenFrames as error:
            self.on_broken(error)

    def _fill(self, count: int) -> None:
        self.on_data_filled(count)
        self._payload_left -= count
        if not self._payload_left:
            self._end_data()

    def _read(self, view: memoryview) -> None:
        at = 0 if self.is_greeted else self._greeting(view)
        while at < len(view) and not self._is_done:
            if self._data is not None:
                at = self._go_on_with_data(view, at)
                continue
            if len(view) - at < frames.HEAD_BYTES:
                return self._keep(view[at:], frames.HEAD_BYTES)
            head = frames.read_head(view[at : at + frames.HEAD_BYTES])
            whole = frames.HEAD_BYTES + _bounded(head)
            if len(view) - at < whole:
                return self._keep(view[at:], whole)
            at += whole
            if head.kind == frames.DATA:
                self._begin_data(head, view[at - 1])
            else:
                self.on_frame(head, bytes(view[at - head.length : at]))
        return None

    def _greeting(self, view: memoryview) -> int:
        count = min(len(view), len(frames.PREFACE))
        if view[:count] != frames.PREFACE[:count]:
            raise BrokenFrames("it does not begin as HTTP/2 does")
        if count < len(frames.PREFACE):
            self._keep(view, len(frames.PREFACE))
            return len(view)
        self.is_greeted = True
        return count

    def _keep(self, view: memoryview, needed: int) -> None:
        self._kept, self._needed = bytearray(view), needed

    def _begin_data(self, head: FrameHead, last_byte: int) -> None:
        """Begin a DATA frame, whose head ends with the number of its padding if it has one."""
        is_padded = bool(head.flags & frames.PADDED)
        self._padding_left = last_byte if is_padded else 0
        self._payload_left = head.length - is_padded - self._padding_left
        if self._payload_left < 0:
            raise BrokenFrames("a DATA frame is shorter than its padding")
        self._data = head
        self.on_data_head(head, head.length - self._payload_left)
        if not (self._payload_left or self._padding_left):
            self._end_data()

    def _go_on_with_data(self, view: memoryview, at: int) -> int:
        count = min(self._payload_left, len(view) - at)
        if count:
            self.on_data(view[at : at + count])
            self._payload_left -= count
        skipped = min(self._padding_left, len(view) - at - count)
        self._padding_left -= skipped
        if not (self._payload_left or self._padding_left):
            self._end_data()
        return at + count + skipped

    def _end_data(self) -> None:
        if self._padding_left:
            return
        head, self._data = self._data, None
        if head is not None:
            self.on_data_end(head)


def _bounded(head: FrameHead) -> int:
    """How much of a frame must be there before it is looked at; of DATA only the number of its padding."""
    if head.length > frames.MOST_FRAME_BYTES:
        raise BrokenFrames("a frame is larger than allowed", frames.FRAME_SIZE_ERROR)
    if head.kind == frames.DATA:
        is_padded = bool(head.flags & frames.PADDED)
        if head.length < is_padded:
            raise BrokenFrames("a DATA frame is shorter than its padding", frames.FRAME_SIZE_ERROR)
        return int(is_padded)
    if head.length > (MOST_HEADER_BYTES if head.kind in _LONG else _MOST_CONTROL_BYTES):
        raise BrokenFrames("a frame is larger than any of its kind", frames.FRAME_SIZE_ERROR)
    return head.length
