"""One metric as a value: its name, kind, labels and help, which `/metrics` and the reference page show."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

Points = Mapping[tuple[str, ...], float]
"""A value for each combination of labels, in the order of the metric's ``labels``."""


class MetricKind(Enum):
    """How a metric's values move: up only, or up and down, or into buckets."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class MetricDescription:
    """What is measured; ``name`` is the one in `/metrics`, with its unit, and ``_total`` for a counter."""

    name: str
    kind: MetricKind
    help: str
    labels: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Distribution:
    """What a histogram holds for one combination of labels: how many fell up to each bound, and their sum.

    ``counts`` has one more entry than ``bounds``, for all above the last; it is not cumulative.
    """

    bounds: Sequence[float]
    counts: Sequence[int]
    total: float


@dataclass(frozen=True, slots=True)
class MeasuredMetric:
    """A metric with its values at one moment: ``points``, or ``distributions`` of a histogram."""

    description: MetricDescription
    points: Points | None = None
    distributions: Mapping[tuple[str, ...], Distribution] | None = None
