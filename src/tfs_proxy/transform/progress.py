"""Says how far a run is: one line that renews itself on a terminal, a log line a minute elsewhere."""

import logging
import shutil
import threading
from types import TracebackType
from typing import Self, TextIO

from tfs_proxy.transform.tally import Tally

TERMINAL_SECONDS = 0.25
LOG_SECONDS = 60.0
BAR_CHARACTERS = 20
_MEGABYTE = 1e6

log = logging.getLogger(__name__)


class Progress:
    """Shows ``tally`` on ``stream`` from a thread of its own, from entry to exit."""

    def __init__(self, tally: Tally, stream: TextIO, log_seconds: float = LOG_SECONDS) -> None:
        self._tally = tally
        self._stream = stream
        self._on_terminal = stream.isatty()
        self._pause_seconds = TERMINAL_SECONDS if self._on_terminal else log_seconds
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._show_often, daemon=True, name="progress")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()
        if self._on_terminal:
            self._stream.write(f"\r\x1b[K{self._fitting()}\n")
            self._stream.flush()

    def _show_often(self) -> None:
        while not self._ended.wait(self._pause_seconds):
            if self._on_terminal:
                self._stream.write(f"\r\x1b[K{self._fitting()}")
                self._stream.flush()
            else:
                log.info("%s", line(self._tally, bar=False))

    def _fitting(self) -> str:
        """As much of the line as the terminal is wide: a line that wraps can't renew itself."""
        return line(self._tally, bar=True)[: shutil.get_terminal_size().columns - 1]


def line(tally: Tally, *, bar: bool) -> str:
    """Objects, records, MB/s, time to go and failures, in one line."""
    counts, begun, expected = tally.counts, tally.begun, tally.expected
    transferred = counts.bytes + begun.bytes
    settled = counts.objects + counts.failed + counts.skipped
    seconds = max(tally.seconds, 1e-9)
    share = min(transferred / expected.bytes, 1.0) if expected.bytes else 1.0
    words = [
        f"{settled} of {expected.objects} objects",
        f"{counts.records + begun.records} records",
        f"{transferred / seconds / _MEGABYTE:.1f} MB/s",
        f"{_left(share, seconds)} to go",
        f"{counts.failed} failed" + (f", {counts.bad_records} bad records" if counts.bad_records else ""),
    ]
    drawn = f"[{'#' * round(share * BAR_CHARACTERS):<{BAR_CHARACTERS}}] " if bar else ""
    return drawn + ", ".join(words)


def _left(share: float, seconds: float) -> str:
    if not share:
        return "?"
    left = round(seconds / share - seconds)
    hours, rest = divmod(left, 3600)
    return f"{hours}:{rest // 60:02}:{rest % 60:02}"
