"""What became of captured records: each process appends its counts to one file, the supervisor reads it."""

from collections import Counter
from collections.abc import Iterator, Mapping
from enum import StrEnum
from pathlib import Path

from tfs_proxy.observe import catalogue
from tfs_proxy.observe.line_file import LineReader, LineWriter
from tfs_proxy.observe.metric import MeasuredMetric, Points


class CaptureOutcome(StrEnum):
    """What became of a record: the values of a label."""

    WRITTEN = "written"
    DROPPED = "dropped"
    TOO_LARGE = "too_large"


Counts = Mapping[CaptureOutcome, int]


class CountsFile:
    """Appends to the file, for any number of processes."""

    def __init__(self, path: Path) -> None:
        self._file = LineWriter(path)

    def add(self, counts: Counts) -> None:
        """Append what has become of more records. Raises OSError."""
        self._file.write(
            (" ".join(str(counts.get(outcome, 0)) for outcome in CaptureOutcome) + "\n").encode()
        )


class CaptureCounter:
    """All records of a run by outcome; they only grow."""

    def __init__(self, path: Path) -> None:
        self._lines = LineReader(path)
        self._counts = Counter(dict.fromkeys(CaptureOutcome, 0))

    def read(self) -> None:
        """Count what has been written since the last time."""
        for chunk in self._lines.chunks():
            for line in chunk.splitlines():
                for outcome, number in zip(CaptureOutcome, line.split(), strict=True):
                    self._counts[outcome] += int(number)

    def measure(self) -> Iterator[MeasuredMetric]:
        """All counts so far."""
        self.read()
        yield measured(self._counts)


def measured(counts: Counts) -> MeasuredMetric:
    """Counts as the metric."""
    points: Points = {(outcome.value,): counts.get(outcome, 0) for outcome in CaptureOutcome}
    return MeasuredMetric(catalogue.CAPTURE_RECORDS, points)
