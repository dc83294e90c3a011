"""Frames of one connection that ask for nothing: a client that sends too many of them is sent away."""

from collections.abc import Callable

from tfs_proxy.wire.http2.frames import ENHANCE_YOUR_CALM, BrokenFrames

_MOST = 10_000
_SECONDS = 10.0
_PER_ANSWER = 20


class Flood:
    """Counts them, against the calls that are answered; ``clock`` is in seconds."""

    __slots__ = ("_clock", "_count", "_since")

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._count = 0
        self._since = clock()

    def count(self) -> None:
        """Count one. Raises BrokenFrames if they are too many in a short time."""
        self._count += 1
        if self._count >= _MOST:
            now = self._clock()
            if now - self._since < _SECONDS:
                raise BrokenFrames("it floods the server with frames that carry nothing", ENHANCE_YOUR_CALM)
            self._count, self._since = 0, now

    def answered(self) -> None:
        """A call has its answer, which takes some frames."""
        self._count = max(0, self._count - _PER_ANSWER)
