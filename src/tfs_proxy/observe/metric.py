"""Metrics as values: descriptions, values at one moment, and sums of those."""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from operator import add

from msgspec import Struct
from msgspec.structs import replace

Labels = tuple[str, ...]
Points = Mapping[Labels, float]
"""Values by combination of labels, in the order of the metric's ``labels``."""


class MetricKind(Enum):
    """Kind of a metric: a counter, a gauge or a histogram."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class MetricDescription(Struct, frozen=True):
    """Description; ``name`` is the one in `/metrics`, with its unit, and ``_total`` for a counter."""

    name: str
    kind: MetricKind
    help: str
    labels: tuple[str, ...] = ()


class Distribution(Struct, frozen=True):
    """Histogram for one combination of labels: how many fell up to each bound, and their sum.

    ``counts`` has one more entry than ``bounds``, for all above the last; it is not cumulative.
    """

    bounds: Sequence[float]
    counts: Sequence[int]
    total: float


class MeasuredMetric(Struct, frozen=True):
    """Metric with its values at one moment: ``points``, or ``distributions`` of a histogram."""

    description: MetricDescription
    points: Points | None = None
    distributions: Mapping[Labels, Distribution] | None = None


class Histogram:
    """Counts values into buckets, by labels."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self._counts: dict[Labels, list[int]] = {}
        self._totals: dict[Labels, float] = {}

    def __bool__(self) -> bool:
        return bool(self._counts)

    def add(self, labels: Labels, value: float, times: int) -> None:
        counts = self._counts.get(labels)
        if counts is None:
            counts = self._counts[labels] = [0] * (len(self._bounds) + 1)
            self._totals[labels] = 0.0
        counts[bisect_left(self._bounds, value)] += times
        self._totals[labels] += value * times

    def add_counts(self, labels: Labels, counts: Sequence[int], total: float) -> None:
        """Add a `Distribution` of these bounds; one of others is left out."""
        if len(counts) == len(self._bounds) + 1:
            self._counts[labels] = list(map(add, self._counts.get(labels, [0] * len(counts)), counts))
            self._totals[labels] = self._totals.get(labels, 0.0) + total

    def forget(self, label: str, at: int = 0) -> None:
        """Drop all with this label at a place."""
        self._counts = {labels: counts for labels, counts in self._counts.items() if labels[at] != label}
        self._totals = {labels: self._totals[labels] for labels in self._counts}

    def distributions(self) -> Mapping[Labels, Distribution]:
        return {
            labels: Distribution(self._bounds, tuple(counts), self._totals[labels])
            for labels, counts in self._counts.items()
        }


def added_up(measured: Iterable[MeasuredMetric]) -> list[MeasuredMetric]:
    """Sum the points of metrics of the same name, in the order of their first appearance."""
    points: dict[str, dict[Labels, float]] = defaultdict(dict)
    firsts: dict[str, MeasuredMetric] = {}
    for metric in measured:
        name = metric.description.name
        firsts.setdefault(name, metric)
        for labels, value in (metric.points or {}).items():
            points[name][labels] = points[name].get(labels, 0) + value
    return [replace(first, points=points.get(name)) for name, first in firsts.items()]
