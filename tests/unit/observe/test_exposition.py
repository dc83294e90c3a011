"""Metrics as text: both formats, any Accept header, and those of several servers as one text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.core import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_open_metrics
from prometheus_client.parser import text_string_to_metric_families

from tfs_proxy.observe.catalogue import METRICS, PROCESS_RESTARTS
from tfs_proxy.observe.exposition import expose, merged
from tfs_proxy.observe.metric import MeasuredMetric, MetricDescription, MetricKind


@given(st.text(max_size=60) | st.builds("application/openmetrics-text; version={}".format, st.text()))
def test_any_accept_header_gets_metrics(accept: str) -> None:
    """One that can't be read means Prometheus's own text, and nothing of it is repeated."""
    text = expose([MeasuredMetric(PROCESS_RESTARTS, {})], accept)

    assert b"tfs_proxy_process_restarts" in text.body
    assert text.content_type.isascii()


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_every_metric_of_the_catalogue_is_explained(metric: MetricDescription) -> None:
    """A sentence of help, and a name that says counters from gauges."""
    assert metric.help.endswith(".")
    assert metric.name.endswith("_total") == (metric.kind is MetricKind.COUNTER)


OFFICIAL = """# TYPE :tensorflow:serving:request_count counter
:tensorflow:serving:request_count{model_name="m",status="OK"} 3
# HELP :tensorflow:serving:request_latency Distribution of latency.
# TYPE :tensorflow:serving:request_latency histogram
:tensorflow:serving:request_latency_bucket{le="10"} 1
:tensorflow:serving:request_latency_bucket{le="1.07e+06"} 1
:tensorflow:serving:request_latency_bucket{le="+Inf"} 2
:tensorflow:serving:request_latency_sum{} 30
:tensorflow:serving:request_latency_count{} 2
# TYPE :tensorflow:core:in_use gauge
:tensorflow:core:in_use{} 0
# TYPE nv.inference.count untyped
nv.inference.count 7 1700000000000
"""
OPEN_METRICS = "application/openmetrics-text; version=1.0.0"


def families(texts: dict[str, str], accept: str | None = None) -> list[Metric]:
    body = expose([], accept, merged(texts, "server")).body.decode()
    return list(read_open_metrics(body) if accept else text_string_to_metric_families(body))  # type: ignore[no-untyped-call]


@pytest.mark.parametrize("accept", [None, OPEN_METRICS])
def test_each_server_has_its_label_and_every_name_is_legal(accept: str | None) -> None:
    """The same names and bounds in both formats, as Prometheus writes them; kinds and helps are kept."""
    described = {family.name: family for family in families({"0": OFFICIAL, "1": OFFICIAL}, accept)}
    samples = {
        (sample.name, sample.labels["server"]): sample.value
        for family in described.values()
        for sample in family.samples
    }
    latency, in_use = described["tensorflow_serving_request_latency"], described["tensorflow_core_in_use"]

    assert {name for name, _ in samples} == {
        "tensorflow_serving_request_count_total",
        "tensorflow_serving_request_latency_bucket",
        "tensorflow_serving_request_latency_sum",
        "tensorflow_serving_request_latency_count",
        "tensorflow_core_in_use",
        "nv_inference_count",
    }
    assert {server for _, server in samples} == {"0", "1"}
    assert samples["tensorflow_serving_request_count_total", "1"] == 3
    assert samples["nv_inference_count", "0"] == 7
    assert (latency.type, latency.documentation) == ("histogram", "Distribution of latency.")
    assert [s.labels["le"] for s in latency.samples if "le" in s.labels] == ["10.0", "1.07e+06", "+Inf"] * 2
    assert (in_use.type, ":tensorflow:core:in_use" in in_use.documentation) == ("gauge", True)


def test_a_label_of_the_same_name_gets_another() -> None:
    text = 'a{server="x",b="1"} 1\na{b="2",server="x\\"y",c="3"} 2\na{my_server="z"} 3\n'
    (family,) = families({"0": text}, OPEN_METRICS)

    assert [sample.labels for sample in family.samples] == [
        {"b": "1", "exported_server": "x", "server": "0"},
        {"b": "2", "c": "3", "exported_server": 'x"y', "server": "0"},
        {"my_server": "z", "server": "0"},
    ]


def test_a_line_that_can_not_be_read_is_left_out() -> None:
    text = 'a{path="/one\ntwo"} 1\na{path="/three"} 2\na 1.2.3\na{b="1",b="2"} 4\n'
    (family,) = families({"0": text}, OPEN_METRICS)

    assert [(sample.labels["path"], sample.value) for sample in family.samples] == [("/three", 2)]


@given(st.text(alphabet='# TYPEHL_abc{}=",:.\\ 019\n\u2028counter', max_size=80))
def test_whatever_a_server_says_the_scrape_can_be_read(text: str) -> None:
    samples = {
        (sample.name, sample.labels["server"])
        for family in families({"broken": text, "good": "fine 1\n"}, OPEN_METRICS)
        for sample in family.samples
    }

    assert ("fine", "good") in samples
