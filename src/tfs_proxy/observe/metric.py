"""One metric as a value: its name, kind, labels and help, which `/metrics` and the reference page show."""

from collections.abc import Mapping, Sequence
from enum import Enum

from msgspec import Struct

Points = Mapping[tuple[str, ...], float]
"""A value for each combination of labels, in the order of the metric's ``labels``."""


class MetricKind(Enum):
    """How a metric's values move: up only, or up and down, or into buckets."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class MetricDescription(Struct, frozen=True):
    """What is measured; ``name`` is the one in `/metrics`, with its unit, and ``_total`` for a counter."""

    name: str
    kind: MetricKind
    help: str
    labels: tuple[str, ...] = ()


class Distribution(Struct, frozen=True):
    """What a histogram holds for one combination of labels: how many fell up to each bound, and their sum.

    ``counts`` has one more entry than ``bounds``, for all above the last; it is not cumulative.
    """

    bounds: Sequence[float]
    counts: Sequence[int]
    total: float


class MeasuredMetric(Struct, frozen=True):
    """A metric with its values at one moment: ``points``, or ``distributions`` of a histogram."""

    description: MetricDescription
    points: Points | None = None
    distributions: Mapping[tuple[str, ...], Distribution] | None = None
