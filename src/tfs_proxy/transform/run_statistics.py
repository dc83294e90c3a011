"""Events of a run: errors of objects, counters and latencies, and the progress line. Thread-safe."""

import contextlib
import logging
import shutil
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import TextIO

from msgspec import Struct, field

from tfs_proxy.values.errors import TfsProxyError
from tfs_proxy.values.latencies import Latencies

log = logging.getLogger(__name__)

MAX_LISTED_FAILURES = 1000

TERMINAL_SECONDS = 0.25
LOG_SECONDS = 10.0


class BadRecord(Struct, frozen=True):
    """A record that the server refused, or a position in an object that can't be read."""

    name: str
    """Name of the object."""

    error: str
    """Sentence that says what is wrong."""

    record: int | None = None
    """Number of the record, from 1; None for the whole object."""

    offset: int | None = None
    """Position in the decompressed object, in bytes; None for the whole object."""

    status: int | None = None
    """HTTP status; None if there is no answer."""

    line: int | None = None
    """Number of the line, from 1; None for the whole object, or if records are no lines."""

    def to_values(self) -> dict[str, object]:
        names = ("line", "record", "offset", "status", "error")
        return {"object": self.name, **{name: getattr(self, name) for name in names}}

    def __str__(self) -> str:
        place = f"at byte {self.offset}" if self.line is None else f"in line {self.line}"
        position = f", record {self.record} {place}" if self.record is not None else ""
        status = f"status {self.status}: " if self.status is not None else ""
        return f"{self.name}{position}: {status}{self.error}"


class ObjectFailed(TfsProxyError):
    """An object can't be transformed; others go on, and the command's exit status is 1."""

    def __init__(self, bad_record: BadRecord) -> None:
        super().__init__(str(bad_record))
        self.bad_record = bad_record


class StorageError(TfsProxyError):
    """An object can't be read or written; the text says why."""


class RunStopped(TfsProxyError):
    """The run was stopped: the next run does what is not finished."""

    def __init__(self) -> None:
        super().__init__("the run was stopped")


RunCounts = Counter[str]
"""Counters of a run: ``objects`` done, ``skipped`` (done by an earlier run) and ``failed``, ``records``,
``bad_records``, ``bytes`` as stored, ``requests`` and ``retries``; ``uneven`` objects, whose
``uneven_records`` got ``surplus`` rows more than they are; before they are written, ``answered`` and
``refused`` records, and their ``settled_bytes``."""


class Workload(Struct, frozen=True):
    """The size of a job: objects and their stored bytes, and how many of these an earlier run finished."""

    objects: int = 0
    bytes: int = 0
    finished_bytes: int = 0


class ObjectReport(Struct, frozen=True):
    """The statistics of one finished object, as a node sends them."""

    counts: RunCounts
    failures: tuple[BadRecord, ...]
    latencies: Latencies


class RunStatistics(Struct):
    """Collects what happens in a run; may be called from several threads."""

    workload: Workload = Workload()
    """Objects of the run, and their size."""

    clock: Callable[[], float] = time.monotonic
    """Function that gives the time in seconds."""

    counts: RunCounts = field(default_factory=RunCounts)
    """Counts so far, or since the last `drain`."""

    failures: list[BadRecord] = field(default_factory=list)
    """Bad records and objects, at most `MAX_LISTED_FAILURES`."""

    _latencies: Latencies = field(default_factory=Latencies)
    """Latencies of the requests."""

    _lock: threading.Lock = field(default_factory=threading.Lock)
    """Lock around all that changes."""

    _began: float = 0.0
    """Time of the clock when the run began."""

    def __post_init__(self) -> None:
        self._began = self.clock()

    @property
    def seconds(self) -> float:
        return self.clock() - self._began

    def add(self, **increments: int) -> None:
        with self._lock:
            for name, number in increments.items():
                self.counts[name] += number

    def add_request(self, seconds: float) -> None:
        with self._lock:
            self.counts["requests"] += 1
            self._latencies.add(seconds)

    def fail(self, bad_record: BadRecord) -> None:
        """Note a bad record or object; the summary lists the first `MAX_LISTED_FAILURES`."""
        with self._lock:
            if len(self.failures) < MAX_LISTED_FAILURES:
                self.failures.append(bad_record)

    def drain(self) -> ObjectReport:
        """Return what was counted since the last call, and start from zero."""
        with self._lock:
            report = ObjectReport(self.counts, tuple(self.failures), self._latencies)
            self.counts = RunCounts()
            self.failures = []
            self._latencies = Latencies()
        return report

    def merge(self, report: ObjectReport) -> None:
        self.add(**report.counts)
        for failure in report.failures:
            self.fail(failure)
        with self._lock:
            self._latencies.merge(report.latencies)

    def percentile_seconds(self, share: float) -> float:
        """The latency that ``share`` (0 to 1) of the requests did not exceed, to 2 %; 0 without any."""
        with self._lock:
            return self._latencies.percentile_seconds(share)

    def summary(self) -> dict[str, object]:
        counts = self.counts
        seconds = max(self.seconds, 1e-9)
        return {
            "objects": {
                "all": self.workload.objects,
                "done": counts["objects"],
                "already_done": counts["skipped"],
                "failed": counts["failed"],
            },
            **{name: counts[name] for name in ("records", "bad_records", "bytes", "requests", "retries")},
            "seconds": round(seconds, 3),
            "records_per_second": round(counts["records"] / seconds, 2),
            "requests_per_second": round(counts["requests"] / seconds, 2),
            "mb_per_second": round(counts["bytes"] / seconds / 1e6, 3),
            "latency_ms": self._latencies.milliseconds(),
            "failures": [failure.to_values() for failure in self.failures],
        }


@contextlib.contextmanager
def shown_progress(statistics: RunStatistics, stream: TextIO) -> Iterator[None]:
    """Show ``statistics`` on ``stream`` while the block runs, from a thread of its own."""
    on_terminal = stream.isatty()
    ended = threading.Event()

    def redraw(end: str = "") -> None:
        # No wider than the terminal, because a wrapped line can't be redrawn.
        stream.write(f"\r\x1b[K{line(statistics)[: shutil.get_terminal_size().columns - 1]}{end}")
        stream.flush()

    def show_often() -> None:
        while not ended.wait(TERMINAL_SECONDS if on_terminal else LOG_SECONDS):
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


def line(statistics: RunStatistics) -> str:
    """Objects, failures, records, bytes per second and time to go, the most important first.

    Objects that an earlier run finished count as done; rate and time to go are those of this run.
    """
    counts = statistics.counts
    settled = counts["objects"] + counts["failed"] + counts["skipped"]
    parts = [f"{settled}/{statistics.workload.objects} objects", f"{counts['failed']} failed"]
    bad = max(counts["bad_records"], counts["refused"])
    records = max(counts["records"], counts["answered"] + counts["refused"])
    seconds = max(statistics.seconds, 1e-9)
    parts += [f"{bad} bad records"] if bad else []
    parts += [
        f"{records} records",
        f"{records / seconds:.1f} records/s",
        _rate(_transferred(statistics) / seconds),
        f"{_to_go(statistics)} to go",
    ]
    return ", ".join(parts)


def _transferred(statistics: RunStatistics) -> int:
    return max(statistics.counts["bytes"], statistics.counts["settled_bytes"])


def _rate(bytes_per_second: float) -> str:
    for unit in ("B", "kB", "MB"):
        if bytes_per_second < 1000:  # noqa: PLR2004
            return f"{bytes_per_second:.{0 if unit == 'B' else 1}f} {unit}/s"
        bytes_per_second /= 1000
    return f"{bytes_per_second:.1f} GB/s"


def _to_go(statistics: RunStatistics) -> str:
    transferred = _transferred(statistics)
    to_do = max(0, statistics.workload.bytes - statistics.workload.finished_bytes - transferred)
    if to_do >= 100 * transferred:  # on Ray the largest objects begin first, and count at their end
        return "?"
    hours, rest = divmod(round(statistics.seconds * to_do / transferred), 3600)
    return f"{hours}:{rest // 60:02}:{rest % 60:02}"
