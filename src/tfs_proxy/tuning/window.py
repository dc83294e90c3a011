"""What counts of a load: the answers that end within its window, from the end of its run-up to its end."""

from collections import Counter
from collections.abc import Sequence

from tfs_proxy.tuning.measured import LoadLevel, percentile

MILLISECONDS = 1000.0
_GOOD = range(200, 300)


class LoadWindow:
    """Answers and failures of one load, which lasts from ``begins`` to ``ends``, in seconds of any clock."""

    def __init__(self, connections: int, begins: float, ends: float) -> None:
        self.begins, self.ends = begins, ends
        self._connections = connections
        self._latencies_ms: list[float] = []
        self._waiting_ms: list[float] = []
        self._failures: Counter[str] = Counter()

    def answered(self, status: int, sent: float, now: float) -> None:
        """An answer has ended."""
        if status not in _GOOD:
            self.failed(f"status {status}")
        elif self.begins <= now < self.ends:
            self._latencies_ms.append((now - sent) * MILLISECONDS)

    def failed(self, how: str) -> None:
        """A request has no answer, or not the one that it should have; the run-up counts, too."""
        self._failures[how] += 1

    def unanswered(self, sent: Sequence[float]) -> None:
        """Requests sent at these times still wait when the load ends: their latency is at least so long.

        Those that have waited for less than the slowest answer say nothing.
        """
        slowest_ms = max(self._latencies_ms, default=0.0)
        waiting = ((self.ends - each) * MILLISECONDS for each in sent)
        self._waiting_ms = [each for each in waiting if each > slowest_ms]

    def level(self) -> LoadLevel:
        """What was measured."""
        ascending = sorted([*self._latencies_ms, *self._waiting_ms])
        return LoadLevel(
            connections=self._connections,
            rate=len(self._latencies_ms) / (self.ends - self.begins),
            p50_ms=percentile(ascending, 0.5),
            p99_ms=percentile(ascending, 0.99),
            failures=dict(self._failures),
        )
