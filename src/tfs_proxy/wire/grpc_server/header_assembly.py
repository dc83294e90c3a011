"""Puts the frames of one header block together: below `connection`."""

from tfs_proxy.wire.http2 import frames
from tfs_proxy.wire.http2.frames import BrokenFrames, FrameHead
from tfs_proxy.wire.http2.header_blocks import MOST_HEADER_BYTES

_MOST_FRAMES = 64


class HeaderAssembly:
    """Takes HEADERS and CONTINUATION in their order; nothing else may come while ``is_open``."""

    __slots__ = ("_block", "_frames_left", "_head")

    def __init__(self) -> None:
        self._head: FrameHead | None = None
        self._block = bytearray()
        self._frames_left = 0

    @property
    def is_open(self) -> bool:
        """Whether a block has begun and not ended."""
        return self._head is not None

    def begin(self, head: FrameHead, payload: bytes) -> bytes | None:
        """Take a HEADERS frame; returns the block if that was all. Raises BrokenFrames."""
        fragment = frames.header_fragment(head, payload)
        if head.flags & frames.END_HEADERS:
            return fragment
        self._head, self._block, self._frames_left = head, bytearray(fragment), _MOST_FRAMES
        return None

    def go_on(self, head: FrameHead, payload: bytes) -> tuple[FrameHead, bytes] | None:
        """Take a CONTINUATION frame; returns block and first head if it is the last. Raises BrokenFrames."""
        first = self._head
        if first is None or head.stream != first.stream:
            raise BrokenFrames("a CONTINUATION frame has no place there")
        self._block += payload
        self._frames_left -= 1
        if len(self._block) > MOST_HEADER_BYTES or not self._frames_left:
            raise BrokenFrames("its headers are larger than allowed", frames.ENHANCE_YOUR_CALM)
        if not head.flags & frames.END_HEADERS:
            return None
        self._head = None
        return first, bytes(self._block)
