"""How much each side of a connection lets the other one send (RFC 9113, 5.2)."""

from tfs_proxy.wire.http2.frames import MOST_WINDOW, BrokenFrames

_RENEWED_BYTES = 1 << 28


class ReceiveWindow:
    """The bytes of DATA that came since the other side was last told that they are read."""

    __slots__ = ("_unreported",)

    def __init__(self) -> None:
        self._unreported = 0

    def to_report(self, count: int) -> int:
        """Count ``count`` more; returns what to tell the other side now, mostly nothing."""
        self._unreported += count
        if self._unreported < _RENEWED_BYTES:
            return 0
        report, self._unreported = self._unreported, 0
        return report


def opened(window: int, increment: int) -> int:
    """A window after one more increment, which may be negative; raises BrokenFrames."""
    if window + increment > MOST_WINDOW:
        raise BrokenFrames("it opens a window further than HTTP/2 allows")
    return window + increment
