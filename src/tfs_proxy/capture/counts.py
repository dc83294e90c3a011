"""Counts of what became of captured records: workers send theirs to the supervisor."""

from collections import Counter
from collections.abc import Iterator, Mapping
from enum import StrEnum

from tfs_proxy.observe import catalogue
from tfs_proxy.observe.metric import MeasuredMetric, Points


class CaptureOutcome(StrEnum):
    """Outcomes of a record: the values of a label."""

    WRITTEN = "written"
    DROPPED = "dropped"
    TOO_LARGE = "too_large"


Counts = Mapping[CaptureOutcome, int]


class CaptureCounter:
    """All records of a run by outcome; they only grow."""

    def __init__(self) -> None:
        self._counts: Counter[CaptureOutcome] = Counter()

    def add(self, counts: Counts) -> None:
        """Count what has become of more records."""
        self._counts.update(counts)

    def measure(self) -> Iterator[MeasuredMetric]:
        """All counts so far."""
        yield measured(self._counts)


def measured(counts: Counts) -> MeasuredMetric:
    """Counts as the metric."""
    points: Points = {(outcome.value,): counts.get(outcome, 0) for outcome in CaptureOutcome}
    return MeasuredMetric(catalogue.CAPTURE_RECORDS, points)
