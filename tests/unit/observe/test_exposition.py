"""Metrics as text: both formats, histograms, and whatever Accept header a client sends."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from tfs_proxy.observe.catalogue import METRICS, PROCESS_RESTARTS
from tfs_proxy.observe.exposition import expose
from tfs_proxy.observe.metric import Distribution, MeasuredMetric, MetricDescription, MetricKind

SECONDS = MetricDescription("call_duration_seconds", MetricKind.HISTOGRAM, "How long.", ("route",))


def test_a_histogram_is_cumulative() -> None:
    """Each bucket has all that fell below its bound, the last one everything."""
    distribution = Distribution((0.1, 1.0), (3, 2, 1), 4.5)
    text = expose([MeasuredMetric(SECONDS, distributions={("/a",): distribution})], None).body.decode()
    (family,) = text_string_to_metric_families(text)

    assert [(sample.labels.get("le"), sample.value) for sample in family.samples] == [
        ("0.1", 3),
        ("1.0", 5),
        ("+Inf", 6),
        (None, 6),
        (None, 4.5),
    ]


@given(st.text(max_size=60))
def test_any_label_value_is_escaped(value: str) -> None:
    """A value with quotes and line ends comes back as it was."""
    text = expose([MeasuredMetric(PROCESS_RESTARTS, {(value, "SIGKILL"): 2})], None).body.decode()
    (family,) = text_string_to_metric_families(text)

    assert family.samples[0].labels["process"] == value


@given(st.text(max_size=60) | st.builds("application/openmetrics-text; version={}".format, st.text()))
def test_any_accept_header_gets_metrics(accept: str) -> None:
    """One that can't be read means Prometheus's own text, and nothing of it is repeated."""
    text = expose([MeasuredMetric(PROCESS_RESTARTS, {})], accept)

    assert b"tfs_proxy_process_restarts" in text.body
    assert text.content_type.isascii()


@pytest.mark.parametrize(
    ("accept", "content_type"),
    [
        ("*/*", "text/plain; version=0.0.4"),
        ("application/openmetrics-text; version=1.0.0", "application/openmetrics-text; version=1.0.0"),
        (
            "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.2",
            "application/openmetrics-text; version=1.0.0",
        ),
        ("application/openmetrics-text; version=9.9.9x", "text/plain; version=0.0.4"),
    ],
)
def test_accept_chooses_the_format(accept: str, content_type: str) -> None:
    """As Prometheus and other scrapers send it."""
    assert expose([], accept).content_type.startswith(content_type)


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_every_metric_of_the_catalogue_is_explained(metric: MetricDescription) -> None:
    """A sentence of help, and a name that says counters from gauges."""
    assert metric.help.endswith(".")
    assert metric.name.endswith("_total") == (metric.kind is MetricKind.COUNTER)
