"""Metrics as text: Prometheus's own format or OpenMetrics, as the Accept header asks."""

import re
from collections.abc import Iterable, Iterator
from itertools import accumulate

from msgspec import Struct
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.exposition import choose_encoder
from prometheus_client.utils import floatToGoString

from tfs_proxy.observe.merging import MergedFamily, text_of_merged
from tfs_proxy.observe.metric import Distribution, MeasuredMetric, MetricKind

_OPEN_METRICS = "application/openmetrics-text"
_END = b"# EOF\n"

_FAMILIES: dict[MetricKind, type[CounterMetricFamily] | type[GaugeMetricFamily]] = {
    MetricKind.COUNTER: CounterMetricFamily,
    MetricKind.GAUGE: GaugeMetricFamily,
}
_CERTAIN_ACCEPT = re.compile(
    r"(?:[a-z*]+/[a-z*.+-]+(?:; *(?:version=\d\.\d\.\d|charset=utf-8|q=[0-9.]+|escaping=[a-z-]+))*(?:, *|$))*"
)


class MetricsText(Struct, frozen=True):
    """What a scrape gets: a body and its media type."""

    body: bytes
    content_type: str


class _Collected(Struct, frozen=True):
    """Families as the encoders want them: behind a method."""

    families: tuple[Metric, ...]

    def collect(self) -> Iterator[Metric]:
        return iter(self.families)


def expose(
    metrics: Iterable[MeasuredMetric], accept: str | None, others: Iterable[MergedFamily] = ()
) -> MetricsText:
    """The text of ``metrics`` for a client that sends ``accept``, the raw header; any header is taken.

    ``others`` are of other servers.
    """
    certain = _CERTAIN_ACCEPT.fullmatch(accept or "")  # the library repeats the version that a client names
    encode, content_type = choose_encoder(certain[0] if certain else "")
    own = encode(_Collected(tuple(map(_family, metrics))))
    if not content_type.startswith(_OPEN_METRICS):
        return MetricsText(own + text_of_merged(others, open_metrics=False).encode(), content_type)
    merged_text = text_of_merged(others, open_metrics=True).encode()
    return MetricsText(own.removesuffix(_END) + merged_text + _END, content_type)


def text_of(metrics: Iterable[MeasuredMetric]) -> str:
    """``metrics`` in Prometheus's text format."""
    return expose(metrics, None).body.decode()


def _family(metric: MeasuredMetric) -> Metric:
    description = metric.description
    if description.kind is MetricKind.HISTOGRAM:
        return _histogram(metric)
    family = _FAMILIES[description.kind](description.name, description.help, labels=description.labels)
    for labels, value in (metric.points or {}).items():
        family.add_metric(labels, value)
    return family


def _histogram(metric: MeasuredMetric) -> Metric:
    description = metric.description
    family = HistogramMetricFamily(description.name, description.help, labels=description.labels)
    for labels, distribution in (metric.distributions or {}).items():
        family.add_metric(labels, _buckets(distribution), distribution.total)
    return family


def _buckets(distribution: Distribution) -> list[tuple[str, float]]:
    """Cumulative counts, as Prometheus has them."""
    bounds = [*map(floatToGoString, distribution.bounds), "+Inf"]
    return list(zip(bounds, map(float, accumulate(distribution.counts)), strict=True))
