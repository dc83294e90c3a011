"""Progress of a download or of unpacking: logged, so that minutes of it do not look like a hang.

It also ends work whose result is not wanted any more.
"""

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import CancelledError

from tfs_proxy.values.memory import MEGABYTE

INTERVAL_SECONDS = 5.0

_log = logging.getLogger(__name__)


class ProgressLog:
    """Logs MB and percent every five seconds, and the duration at the end if it logged anything before.

    Each call raises CancelledError once ``cancelled`` is set.
    """

    def __init__(
        self,
        task: str,
        cancelled: threading.Event | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        write: Callable[[str], None] = _log.info,
    ) -> None:
        self._task = task
        self._cancelled = cancelled or threading.Event()
        self._clock = clock
        self._write = write
        self._start = self._last = clock()
        self._done = 0
        self._lock = threading.Lock()

    def __call__(self, done: int, total: int) -> None:
        """Note that ``done`` bytes of ``total`` are done."""
        self.refuse_if_cancelled()
        now = self._clock()
        if now - self._last < INTERVAL_SECONDS:
            return
        self._last = now
        percent = f", {100 * done // total}%" if total else ""
        self._write(f"{self._task}: {done // MEGABYTE} of {total // MEGABYTE} MB{percent}")

    def add(self, count: int, total: int) -> None:
        """Note that ``count`` more bytes are done; thread-safe."""
        with self._lock:
            self._done += count
            self(self._done, total)

    def refuse_if_cancelled(self) -> None:
        if self._cancelled.is_set():
            raise CancelledError(f"{self._task}: cancelled")

    def finish(self) -> None:
        """Log the duration, if a line was logged before."""
        if self._last > self._start:
            self._write(f"{self._task}: done after {self._clock() - self._start:.0f} s")
