"""Counters and latencies of a run, for the progress line and the summary. Thread-safe."""

import threading
import time
from collections import Counter
from collections.abc import Callable

from msgspec import Struct, field

from tfs_proxy.latencies import Latencies
from tfs_proxy.transform.failures import BadRecord

MAX_LISTED_FAILURES = 1000


RunCounts = Counter[str]
"""How far a run is: ``objects`` done, ``skipped`` (done by an earlier run) and ``failed``, ``records``,
``bad_records``, ``bytes`` as stored, ``requests`` and ``retries``; before they are written, ``answered`` and
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
    """Collects what happens in a run of ``workload``.

    ``in_progress`` counts what unfinished objects on other nodes have come to: it is shown, and it is
    replaced by their reports when they end.
    """

    workload: Workload = Workload()
    clock: Callable[[], float] = time.monotonic
    counts: RunCounts = field(default_factory=RunCounts)
    failures: list[BadRecord] = field(default_factory=list)
    in_progress: RunCounts = field(default_factory=RunCounts)
    _latencies: Latencies = field(default_factory=Latencies)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _began: float = 0.0

    def __post_init__(self) -> None:
        self._began = self.clock()

    @property
    def seconds(self) -> float:
        """How long the run has taken until now."""
        return self.clock() - self._began

    def add(self, **increments: int) -> None:
        """Add to the counters of these names."""
        with self._lock:
            self.counts.update(increments)

    def add_request(self, seconds: float) -> None:
        """Count one answered request and its latency."""
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
            self.counts, self.failures, self._latencies = RunCounts(), [], Latencies()
        return report

    def merge(self, report: ObjectReport) -> None:
        """Add what another collection has drained."""
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
        """The whole run as JSON values."""
        counts, seconds = self.counts, max(self.seconds, 1e-9)
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
