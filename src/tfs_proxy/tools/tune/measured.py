"""Measurements: one load, the loads of one start of a stack, and the scores that a search compares."""

import math
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence

from msgspec import Struct, field

from tfs_proxy.tools.tune.axes import Point

FAILED = -math.inf
"""Score of settings with which requests fail, or the stack does not start."""


class LoadLevel(Struct, frozen=True):
    """A load of ``connections``, each with one request at a time.

    ``rate`` counts good answers per second; latencies are in milliseconds. ``failures`` counts all other ends
    of requests by their kind.
    """

    connections: int
    rate: float
    p50_ms: float
    p99_ms: float
    failures: Mapping[str, int] = field(default_factory=dict)

    def holds(self, p99_ms: float) -> bool:
        """True if every request was answered, and 99 of 100 in time."""
        return not self.failures and self.rate > 0 and self.p99_ms <= p99_ms


class Trial(Struct, frozen=True):
    """One start of a stack with the settings of ``point``; ``fault`` says why it could not be measured."""

    point: Point
    levels: tuple[LoadLevel, ...]
    fault: str = ""

    def best(self, p99_ms: float) -> LoadLevel | None:
        """The load with the highest rate within the target; None if none was within it."""
        good = (level for level in self.levels if level.holds(p99_ms))
        return max(good, key=lambda level: level.rate, default=None)

    def score(self, p99_ms: float) -> float:
        """The highest rate within the target; without one, the negative of the lowest p99."""
        best = self.best(p99_ms)
        if best is not None:
            return best.rate
        answered = [-level.p99_ms for level in self.levels if not level.failures and level.rate > 0]
        return max(answered, default=FAILED)

    @property
    def failure(self) -> str:
        counts = [f"{count} x {name}" for level in self.levels for name, count in level.failures.items()]
        return self.fault or "; ".join(counts)


def percentile(ascending: Sequence[float], share: float) -> float:
    """The smallest value that at least ``share`` of the values do not exceed; 0 without values."""
    if not ascending:
        return 0.0
    return ascending[max(0, math.ceil(share * len(ascending)) - 1)]


def median_score(trials: Sequence[Trial], p99_ms: float) -> float:
    return statistics.median(trial.score(p99_ms) for trial in trials)


MILLISECONDS = 1000.0
_GOOD = range(200, 300)


class LoadWindow:
    """Counts answers and failures of a load from ``begins`` to ``ends``, in seconds of any clock."""

    def __init__(self, connections: int, begins: float, ends: float) -> None:
        self.begins, self.ends = begins, ends
        self._connections = connections
        self._latencies_ms: list[float] = []
        self._waiting_ms: list[float] = []
        self._failures: Counter[str] = Counter()

    def answered(self, status: int, sent: float, now: float) -> None:
        if status not in _GOOD:
            self.failed(f"status {status}")
        elif self.begins <= now < self.ends:
            self._latencies_ms.append((now - sent) * MILLISECONDS)

    def failed(self, how: str) -> None:
        """Counts a request without the answer that it should have, in the run-up, too."""
        self._failures[how] += 1

    def unanswered(self, sent: Sequence[float]) -> None:
        """Counts requests sent at these times that still wait at the end, with the time waited so far.

        Those that waited for less than the slowest answer are left out.
        """
        slowest_ms = max(self._latencies_ms, default=0.0)
        waiting = ((self.ends - each) * MILLISECONDS for each in sent)
        self._waiting_ms = [each for each in waiting if each > slowest_ms]

    def level(self) -> LoadLevel:
        ascending = sorted([*self._latencies_ms, *self._waiting_ms])
        return LoadLevel(
            connections=self._connections,
            rate=len(self._latencies_ms) / (self.ends - self.begins),
            p50_ms=percentile(ascending, 0.5),
            p99_ms=percentile(ascending, 0.99),
            failures=dict(self._failures),
        )
