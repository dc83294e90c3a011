"""Metrics of several servers as one text."""

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_open_metrics

from tfs_proxy.observe.exposition import expose
from tfs_proxy.observe.merging import merged

OFFICIAL = """# TYPE :tensorflow:serving:request_count counter
:tensorflow:serving:request_count{model_name="m",status="OK"} 3
# HELP :tensorflow:serving:request_latency Distribution of latency.
# TYPE :tensorflow:serving:request_latency histogram
:tensorflow:serving:request_latency_bucket{le="10"} 1
:tensorflow:serving:request_latency_bucket{le="+Inf"} 2
:tensorflow:serving:request_latency_sum 30
:tensorflow:serving:request_latency_count 2
"""


def test_each_server_has_its_label_and_every_name_is_legal() -> None:
    """As OpenMetrics' strict parser has it."""
    text = expose(
        [], "application/openmetrics-text; version=1.0.0", merged({"0": OFFICIAL, "1": OFFICIAL}, "server")
    )
    families = read_open_metrics(text.body.decode())  # type: ignore[no-untyped-call]
    samples = {(sample.name, sample.labels["server"]) for family in families for sample in family.samples}

    assert {name for name, _ in samples} == {
        "tensorflow_serving_request_count_total",
        "tensorflow_serving_request_latency_bucket",
        "tensorflow_serving_request_latency_sum",
        "tensorflow_serving_request_latency_count",
    }
    assert {server for _, server in samples} == {"0", "1"}


@given(st.text(alphabet='# TYPEabc{}=",: 019\n', max_size=80))
def test_a_text_that_can_not_be_read_is_left_out(text: str) -> None:
    """And spoils nothing of the others."""
    names = {family.name for family in merged({"broken": text, "good": "fine 1\n"}, "server")}

    assert "fine" in names
