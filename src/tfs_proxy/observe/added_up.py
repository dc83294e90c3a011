"""The metrics of several stacks as those of one run: where they measure the same, the values are added up."""

from collections.abc import Iterable, Mapping
from operator import add

from tfs_proxy.observe.metric import Distribution, MeasuredMetric

Labels = tuple[str, ...]


def added_up(measured: Iterable[MeasuredMetric]) -> list[MeasuredMetric]:
    """Each metric once, in the order of their first appearance."""
    points: dict[str, dict[Labels, float]] = {}
    distributions: dict[str, dict[Labels, Distribution]] = {}
    firsts: dict[str, MeasuredMetric] = {}
    for metric in measured:
        name = metric.description.name
        firsts.setdefault(name, metric)
        _add_points(points.setdefault(name, {}), metric.points or {})
        _add_distributions(distributions.setdefault(name, {}), metric.distributions or {})
    return [
        MeasuredMetric(first.description, points[name] or None, distributions[name] or None)
        for name, first in firsts.items()
    ]


def _add_points(sums: dict[Labels, float], points: Mapping[Labels, float]) -> None:
    for labels, value in points.items():
        sums[labels] = sums.get(labels, 0) + value


def _add_distributions(
    sums: dict[Labels, Distribution], distributions: Mapping[Labels, Distribution]
) -> None:
    for labels, one in distributions.items():
        other = sums.get(labels)
        sums[labels] = one if other is None else _sum(one, other)


def _sum(one: Distribution, other: Distribution) -> Distribution:
    """Of two with the same bounds."""
    return Distribution(one.bounds, tuple(map(add, one.counts, other.counts)), one.total + other.total)
