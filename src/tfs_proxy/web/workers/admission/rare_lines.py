"""Events of which at most one in a while gets a line in the log, with the number of those since the last."""

import threading
from collections.abc import Callable


class RareLines:
    """Counts events between lines that are at least so many seconds apart."""

    def __init__(self, seconds: float, clock: Callable[[], float]) -> None:
        self._seconds = seconds
        self._clock = clock
        self._lock = threading.Lock()
        self._unsaid = 0
        self._next_line = float("-inf")

    def count(self) -> int:
        """Count one event; how many a line written now is for, 0 if it is too early for one."""
        with self._lock:
            self._unsaid += 1
            now = self._clock()
            if now < self._next_line:
                return 0
            self._next_line = now + self._seconds
            unsaid, self._unsaid = self._unsaid, 0
            return unsaid
