"""Requests counted from lines: any line gives a count or is counted as unreadable."""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfs_proxy.observe import catalogue
from tfs_proxy.observe.metric import MeasuredMetric
from tfs_proxy.observe.request_counts import (
    FinishedRequest,
    KnownModels,
    ModelCounts,
    RequestCounts,
    read_line,
    request_line,
)
from tfs_proxy.wire.routes import method_of

LINES = st.lists(
    st.binary(max_size=60)
    | st.builds(
        "{} {} {} - - 1 1 {} {}".format,
        st.sampled_from(["200", "499", "000", "20"]),
        st.sampled_from(["0.000", "1.5", "-", "9999999999.0"]),
        st.sampled_from(["-", "0-", "-12", "--", "77-"]),
        st.sampled_from(["GET", "POST", "-", "BREW"]),
        st.text(max_size=20),
    ).map(str.encode)
)


def measured(counts: RequestCounts) -> dict[str, MeasuredMetric]:
    return {metric.description.name: metric for metric in counts.measure()}


def total(counts: RequestCounts) -> float:
    """All that has been counted, in whichever metric."""
    metrics = measured(counts)
    durations = metrics[catalogue.REQUEST_DURATION.name].distributions or {}
    points = [
        metrics[each.name].points or {} for each in (catalogue.PROBE_REQUESTS, catalogue.UNREADABLE_LINES)
    ]
    return sum(sum(of.counts) for of in durations.values()) + sum(sum(of.values()) for of in points)


@given(LINES)
def test_every_line_counts_once(lines: list[bytes]) -> None:
    counts = RequestCounts()
    text = b"\n".join(lines)
    counts.add_lines(text)

    assert total(counts) == len([line for line in text.split(b"\n") if line])


REQUESTS = st.builds(
    FinishedRequest,
    st.text(max_size=20),
    st.integers(100, 999),
    st.floats(0, 1e6),
    st.text(max_size=40),
    model=st.text(max_size=20),
    version=st.text(max_size=20),
)


@given(REQUESTS)
def test_a_worker_s_line_is_read_as_it_was_meant(meant: FinishedRequest) -> None:
    """One line, whatever stands in the request."""
    line = request_line(meant)
    request = read_line(line.removesuffix(b"\n"))

    assert line.count(b"\n") == 1
    assert request is not None
    assert request.status == meant.status
    assert method_of(request.method) in {method_of(meant.method), "_OTHER"}
    plain = all(" " < character <= "~" for character in meant.model)
    assert request.model in ({meant.model, "?", meant.model.removeprefix("-")} if plain else {"?"})


@pytest.mark.parametrize(
    ("line", "labels"),
    [
        (b"200 0.003 - - - 0 0 POST /invocations?a=1", ("/invocations", "POST", "200")),
        (b'@id-1 key m;1 "no%20room" 404 0.003 - - - 0 0 GET / HTTP/1.1', ("/", "GET", "404")),
        (b"400 0.000 - - - 0 0 ", ("other", "_OTHER", "400")),
        (b"405 0.000 - - - 0 0 BREW /%2fping", ("other", "_OTHER", "405")),
        (
            b"499 0.003 - - - 0 0 POST /V1/models/m/versions/3:Predict",
            ("/v1/models/{model}:predict", "POST", "499"),
        ),
        (b"507 0.003 - a - 0 0 POST /models/a/invoke", ("/models/{name}/invoke", "POST", "507")),
        (b"404 0.003 - - - 0 0 GET /models/a/ready", ("other", "GET", "404")),
        (
            b"200 0.003 - - - 0 0 POST /v2/models/m/versions/3/infer",
            ("/v2/models/{model}/infer", "POST", "200"),
        ),
        (b"404 0.003 - - - 0 0 POST /v2/models/m/elsewhere", ("other", "POST", "404")),
        (
            b"200 0.003 0- - - 0 0 POST /inference.GRPCInferenceService/ServerLive HTTP/2.0",
            ("/inference.GRPCInferenceService/ServerLive", "POST", "200"),
        ),
        (b"000 0.003 - - - 0 0 GET /" + b"x" * 9000, ("other", "GET", "other")),
    ],
)
def test_a_line_of_nginx_counts_at_its_route(line: bytes, labels: tuple[str, ...]) -> None:
    """Unknown paths and methods share a value."""
    counts = RequestCounts()
    counts.add_lines(line)

    assert list(measured(counts)[catalogue.REQUEST_DURATION.name].distributions or {}) == [labels]


ONE_OF_EACH = b"""200 0.003 - a - 100 20 POST /models/a/invoke HTTP/1.1
507 0.003 - a 3 100 20 POST /models/a/invoke HTTP/1.1
404 0.003 - b - 100 20 POST /models/b/invoke HTTP/1.1
200 0.003 - a - 100 20 POST /invocations HTTP/1.1
404 0.003 - - - 100 20 POST /invocations HTTP/1.1
200 0.003 - a - 100 20 POST /v1/models/a:predict HTTP/1.1
200 0.003 - - - 100 20 GET /models/a HTTP/1.1
200 0.003 - - - 100 20 POST /models HTTP/1.1
"""


def test_models_come_and_go_while_requests_are_counted() -> None:
    """A name is a value as long as the model is there; that of one that has gone is another's."""
    known = KnownModels(None, {})
    counts = RequestCounts()
    counts.models = ModelCounts(known)

    def by_model() -> Mapping[tuple[str, ...], float]:
        return measured(counts)[catalogue.MODEL_REQUESTS.name].points or {}

    counts.add_lines(ONE_OF_EACH)
    before = {("other", "other", "ok"): 3, ("other", "other", "client_error"): 2}
    assert by_model() == {**before, ("other", "other", "server_error"): 1}

    known.add("a", (3,))
    counts.add_lines(ONE_OF_EACH)
    loaded = {("a", "latest", "ok"): 3, ("a", "3", "server_error"): 1}
    assert {labels: count for labels, count in by_model().items() if labels[0] != "other"} == loaded

    others = {labels: count for labels, count in by_model().items() if labels[0] == "other"}
    counts.models.remove_model("a")
    counts.models.remove_model("never loaded")
    assert by_model() == others
    for metric in measured(counts).values():
        assert not any("a" in labels for labels in metric.distributions or {})

    counts.add_lines(ONE_OF_EACH)
    assert set(by_model()) == {("other", "other", of) for of in ("ok", "client_error", "server_error")}
