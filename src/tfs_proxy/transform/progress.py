"""Shows the progress of a run: one line that is redrawn on a terminal, else a log line each ten seconds."""

import contextlib
import logging
import shutil
import threading
from collections.abc import Iterator
from typing import TextIO

from tfs_proxy.transform.run_statistics import RunStatistics

TERMINAL_SECONDS = 0.25
LOG_SECONDS = 10.0
BAR_CHARACTERS = 20
SHORTEST_BAR_CHARACTERS = 5

log = logging.getLogger(__name__)


@contextlib.contextmanager
def shown_progress(
    statistics: RunStatistics, stream: TextIO, log_seconds: float = LOG_SECONDS
) -> Iterator[None]:
    """Show ``statistics`` on ``stream`` while the block runs, from a thread of its own."""
    on_terminal, ended = stream.isatty(), threading.Event()

    def redraw(end: str = "") -> None:
        # No wider than the terminal, because a wrapped line can't be redrawn.
        stream.write(f"\r\x1b[K{fitted(statistics, shutil.get_terminal_size().columns - 1)}{end}")
        stream.flush()

    def show_often() -> None:
        while not ended.wait(TERMINAL_SECONDS if on_terminal else log_seconds):
            redraw() if on_terminal else log.info("%s", line(statistics))

    thread = threading.Thread(target=show_often, daemon=True, name="progress")
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        if on_terminal:
            redraw("\n")


def fitted(statistics: RunStatistics, columns: int) -> str:
    """The progress line with a bar as long as ``columns`` characters allow, or without one."""
    text = line(statistics)
    bar_characters = min(BAR_CHARACTERS, columns - len(text) - len("[] "))
    if bar_characters < SHORTEST_BAR_CHARACTERS:
        return text[:columns]
    return f"[{'#' * round(_share(statistics) * bar_characters):<{bar_characters}}] {text}"


def line(statistics: RunStatistics) -> str:
    """Objects, failures, records, bytes per second and time to go, the most important first.

    Objects that an earlier run finished count as done; rate and time to go are those of this run.
    """
    counts = statistics.counts
    settled = counts["objects"] + counts["failed"] + counts["skipped"]
    parts = [f"{settled}/{statistics.workload.objects} objects", f"{counts['failed']} failed"]
    bad = max(_counted(statistics, "bad_records"), _counted(statistics, "refused"))
    records = _counted(statistics, "answered") + _counted(statistics, "refused")
    records = max(_counted(statistics, "records"), records)
    parts += [f"{bad} bad records"] if bad else []
    parts += [
        f"{records} records",
        f"{records / max(statistics.seconds, 1e-9):.1f} records/s",
        _rate(_transferred(statistics) / max(statistics.seconds, 1e-9)),
        f"{_to_go(statistics)} to go",
    ]
    return ", ".join(parts)


def _counted(statistics: RunStatistics, name: str) -> int:
    return statistics.counts[name] + statistics.in_progress[name]


def _transferred(statistics: RunStatistics) -> int:
    return max(_counted(statistics, "bytes"), _counted(statistics, "settled_bytes"))


def _share(statistics: RunStatistics) -> float:
    """The share of the whole job that is done, from 0 to 1."""
    workload = statistics.workload
    done = workload.finished_bytes + _transferred(statistics)
    return min(done / workload.bytes, 1.0) if workload.bytes else 1.0


def _rate(bytes_per_second: float) -> str:
    for unit in ("B", "kB", "MB"):
        if bytes_per_second < 1000:  # noqa: PLR2004
            return f"{bytes_per_second:.{0 if unit == 'B' else 1}f} {unit}/s"
        bytes_per_second /= 1000
    return f"{bytes_per_second:.1f} GB/s"


def _to_go(statistics: RunStatistics) -> str:
    transferred = _transferred(statistics)
    if not transferred:
        return "?"
    to_do = max(0, statistics.workload.bytes - statistics.workload.finished_bytes - transferred)
    hours, rest = divmod(round(statistics.seconds * to_do / transferred), 3600)
    return f"{hours}:{rest // 60:02}:{rest % 60:02}"
