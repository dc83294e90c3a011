"""Names, kinds and labels of metrics, on the page and at /metrics of stacks that run."""

import re
from pathlib import Path

import grpc
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_open_metrics
from prometheus_client.parser import text_string_to_metric_families as read_text

from contract.conftest import Check, Start
from contract.doors import ONE, Running, until

pytestmark = pytest.mark.tensorflow

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "metrics.md"
OPEN_METRICS = {"Accept": "application/openmetrics-text; version=1.0.0"}
OF_A_SAMPLE = {"le"}
OF_A_SERVER = "tensorflow_serving_request_count_total"
STAGE = {"stage", "exported_stage"}
"""What a pipeline's stages say has their number as `stage`; a label of that name is `exported_stage` then."""
OF_TENSORFLOW = "tensorflow_(?!serving_)"
"""What TensorFlow itself measures, by its version."""


def described() -> dict[str, tuple[str, set[str]]]:
    """Kind and labels by name, as the page has them."""
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \| (.*?) \|", PAGE.read_text(), re.MULTILINE)
    return {name: (kind, set(re.findall(r"\w+", labels))) for name, kind, labels in rows}


def families(running: Running) -> dict[str, tuple[str, set[str]]]:
    """Kind and labels by name, of those that have samples."""
    answer = running.ask("GET", "/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    found = {}
    for family in read_text(answer.body.decode()):
        if family.samples:
            labels = {name for sample in family.samples for name in sample.labels}
            name = f"{family.name}_total" if family.type == "counter" else family.name
            found[name] = (family.type, labels - OF_A_SAMPLE)
    return found


def test_the_page(recorded: Check) -> None:
    """Names, kinds and labels."""
    recorded(
        "metrics", "page", {name: [kind, *sorted(labels)] for name, (kind, labels) in described().items()}
    )


@pytest.mark.parametrize("kind", ["nginx", "bare", "many", "pipeline", "script"])
def test_what_a_stack_shows(stacks: Start, recorded: Check, kind: str) -> None:
    """All that the page promises of it, with the page's kinds and labels; and what the model servers measure."""
    running = stacks(kind)
    running.invoke()
    running.invoke("nonsense")
    running.ask("GET", "/nope")
    if kind in {"nginx", "bare"}:
        with grpc.insecure_channel(running.grpc) as channel, pytest.raises(grpc.RpcError):
            channel.unary_unary("/made.up.Service/Call")(b"", timeout=60)
    if kind in {"nginx", "bare", "script"}:
        until(lambda: OF_A_SERVER in families(running), "the model server's own metrics are read")
    if kind != "many":
        until(lambda: sum("_stage_" in name for name in families(running)) > 1, "the workers have reported")
    shown, page = families(running), described()

    for name, (kind_of, labels) in shown.items():
        if not name.startswith("tensorflow_"):
            assert (kind_of, labels - STAGE) == (page[name][0], page[name][1] - STAGE), name
    recorded.at_least(
        "metrics", f"at {kind}", sorted(name for name in shown if not re.match(OF_TENSORFLOW, name))
    )


def test_openmetrics(front: Running) -> None:
    """Its strict parser reads the same names, and the labels of model servers' own metrics."""
    front.invoke(ONE)
    until(lambda: OF_A_SERVER in families(front), "the model server's own metrics are read")
    answer = front.ask("GET", "/metrics", headers=OPEN_METRICS)

    assert answer.headers["content-type"].startswith("application/openmetrics-text")
    names = {family.name for family in read_open_metrics(answer.body.decode())}  # type: ignore[no-untyped-call]
    assert {
        "tfs_proxy_ready",
        "http_server_request_duration_seconds",
        "tensorflow_serving_request_count",
    } <= names


def test_each_request_counts_once_by_route_method_and_status(front: Running) -> None:
    """Of the routes that are known; unknown ones share a label, unknown methods, too."""

    def counts() -> dict[tuple[str, str, str], float]:
        text = front.ask("GET", "/metrics").body.decode()
        (family,) = (each for each in read_text(text) if each.name == "http_server_request_duration_seconds")
        labels = ("http_route", "http_request_method", "http_response_status_code")
        return {
            tuple(sample.labels[label] for label in labels): sample.value  # type: ignore[misc]
            for sample in family.samples
            if sample.name.endswith("_count")
        }

    before = counts()
    front.invoke()
    front.invoke("nonsense")
    front.ask("GET", "/invocations")
    front.ask("GET", "/here/or/there")
    front.ask("POST", "/v1/models/half_plus_two:predict", ONE)
    front.raw(b"BREW /invocations HTTP/1.1\r\nHost: localhost\r\n\r\n")
    wanted = {
        ("/invocations", "POST", "200"),
        ("/invocations", "POST", "400"),
        ("/invocations", "GET", "405"),
        ("other", "GET", "404"),
        ("/v1/models/{model}:predict", "POST", "200"),
        ("/invocations", "_OTHER", "405"),
    }
    after = counts()
    assert {key for key in after if after[key] != before.get(key, 0)} == wanted
    assert {after[key] - before.get(key, 0) for key in wanted} == {1}
