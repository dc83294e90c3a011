"""How much each side of a connection lets the other one send (RFC 9113, 5.2)."""

from tfs_proxy.wire.grpc_client.frames import (
    DEFAULT_WINDOW,
    INITIAL_WINDOW_SIZE,
    LEAST_FRAME_BYTES,
    MAX_FRAME_SIZE,
    MOST_WINDOW,
    BrokenFrames,
)

_RENEWED_BYTES = 1 << 28


class SendWindows:
    """What the server takes: of the connection, of the present stream, and in one frame; in bytes."""

    __slots__ = ("_connection", "_initial", "_stream", "most_frame_bytes")

    def __init__(self) -> None:
        self._connection = self._initial = self._stream = DEFAULT_WINDOW
        self.most_frame_bytes = LEAST_FRAME_BYTES

    def begin_stream(self) -> None:
        """The next call has a window of its own."""
        self._stream = self._initial

    def available(self) -> int:
        """How many bytes of DATA may be sent now."""
        return max(0, min(self._connection, self._stream))

    def spend(self, count: int) -> None:
        """Count bytes that are sent."""
        self._connection -= count
        self._stream -= count

    def set(self, setting: int, value: int) -> None:
        """Take a setting of the server over; one of no concern here changes nothing."""
        if setting == MAX_FRAME_SIZE:
            self.most_frame_bytes = value
        elif setting == INITIAL_WINDOW_SIZE:
            self._stream = _opened(self._stream, value - self._initial)
            self._initial = value

    def open(self, increment: int, *, stream: bool) -> None:
        """Count a WINDOW_UPDATE, of the present stream or of the connection; raises BrokenFrames."""
        if stream:
            self._stream = _opened(self._stream, increment)
        else:
            self._connection = _opened(self._connection, increment)


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


def _opened(window: int, increment: int) -> int:
    """A window after one more increment, which may be negative; raises BrokenFrames."""
    if window + increment > MOST_WINDOW:
        raise BrokenFrames("it opens a window further than HTTP/2 allows")
    return window + increment
