"""How busy the workers' threads are: what their journals and their own messages say."""

from collections.abc import Iterator
from pathlib import Path

from tfs_proxy.observe import catalogue
from tfs_proxy.observe.journal_notes import under_way
from tfs_proxy.observe.metric import MeasuredMetric
from tfs_proxy.supervisor.health.heartbeats import Heartbeats


class WorkerThreads:
    """Measures the threads of the workers that live; their journals are in the folder ``journal``."""

    def __init__(self, heartbeats: Heartbeats, journal: Path, threads_each: int) -> None:
        self._heartbeats = heartbeats
        self._journal = journal
        self._threads_each = threads_each

    def follow(self, heartbeats: Heartbeats) -> None:
        """Measure the workers that send these from now on."""
        self._heartbeats = heartbeats

    def measure(self) -> Iterator[MeasuredMetric]:
        """All, busy, and stuck."""
        calls, alive = self._heartbeats.hanging_calls, self._heartbeats.alive
        busy = sum(under_way(self._journal / pid.decode()) for pid in alive if pid.isdigit())
        yield MeasuredMetric(catalogue.WORKER_THREADS, {(): calls.workers * self._threads_each})
        yield MeasuredMetric(catalogue.WORKER_THREADS_BUSY, {(): busy})
        yield MeasuredMetric(catalogue.WORKER_THREADS_STUCK, {(): calls.stuck_threads(alive)})
