"""Log lines while a download or unpacking goes on, so that minutes of it do not look like a hang."""

import logging
import threading
import time
from collections.abc import Callable

INTERVAL_SECONDS = 5.0
MEGABYTE = 1024 * 1024

_log = logging.getLogger(__name__)


class ProgressLog:
    """A line every five seconds with MB and percent, and one at the end if any was written."""

    def __init__(
        self,
        task: str,
        clock: Callable[[], float] = time.monotonic,
        write: Callable[[str], None] = _log.info,
    ) -> None:
        self._task = task
        self._clock = clock
        self._write = write
        self._start = self._last = clock()
        self._done = 0
        self._lock = threading.Lock()

    def __call__(self, done: int, total: int) -> None:
        """Hear that ``done`` bytes of ``total`` are through."""
        now = self._clock()
        if now - self._last < INTERVAL_SECONDS:
            return
        self._last = now
        percent = f", {100 * done // total}%" if total else ""
        self._write(f"{self._task}: {done // MEGABYTE} of {total // MEGABYTE} MB{percent}")

    def add(self, count: int, total: int) -> None:
        """Hear that ``count`` more bytes are through; from any thread."""
        with self._lock:
            self._done += count
            self(self._done, total)

    def finish(self) -> None:
        """Say how long it took, where a line was written before."""
        if self._last > self._start:
            self._write(f"{self._task}: done after {self._clock() - self._start:.0f} s")
