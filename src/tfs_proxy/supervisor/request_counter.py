"""Counts the run's requests: reads the lines that nginx, or the workers without it, have written."""

from collections.abc import Iterator
from pathlib import Path

from tfs_proxy.observe.line_file import LineReader
from tfs_proxy.observe.metric import MeasuredMetric
from tfs_proxy.observe.request_counts import RequestCounts


class RequestCounter:
    """``counts`` has every request whose line has been read; a scrape reads the last ones first."""

    def __init__(self, path: Path) -> None:
        self.counts = RequestCounts()
        self._lines = LineReader(path)

    def read(self) -> None:
        """Count what has been written since the last time."""
        for chunk in self._lines.chunks():
            self.counts.add_lines(chunk)

    def measure(self) -> Iterator[MeasuredMetric]:
        """All requests that have ended by now."""
        self.read()
        return self.counts.measure()
