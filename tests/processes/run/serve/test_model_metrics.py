"""What `/metrics` says of each model, and of the stages of its requests."""

import os
import signal
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from support.archives import has_nginx, stand_in_archive, stand_in_program, without_nginx
from support.scraping import Scrape, scrape
from support.stack import Stack, serving

FRONTS = [
    pytest.param({}, id="nginx", marks=pytest.mark.skipif(not has_nginx(), reason="nginx is not installed")),
    pytest.param(without_nginx(), id="gunicorn"),
]
ATTRIBUTES = "X-Amzn-SageMaker-Custom-Attributes"
INSTANCES = b'{"instances": [1.0, 2.0]}'
SCRIPT = """
def input_handler(data, context):
    return data.read()


def output_handler(response, context):
    return response.content, "application/json"
"""
OUTCOMES = "tfs_proxy_model_requests_total"
DURATIONS = "tfs_proxy_model_request_duration_seconds_count"
STAGES = "tfs_proxy_stage_duration_seconds_count"
RECORDS = "tfs_proxy_request_records"


def run(folder: Path, script: str | None, front: Mapping[str, str]) -> Iterator[Stack]:
    """A model with a script, or without, and one worker."""
    archive = stand_in_archive(folder / "model.tar.gz", script=script)
    env = {"SAGEMAKER_GUNICORN_WORKERS": "1", **front}
    with serving(str(archive), "--model-server", stand_in_program(folder), env=env) as running:
        yield running


@pytest.fixture(params=FRONTS)
def scripted(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Stack]:
    """A model with a script."""
    yield from run(tmp_path, SCRIPT, request.param)


@pytest.fixture(scope="module", params=FRONTS)
def plain(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Stack]:
    """A model without a script, so that nginx has its fast path."""
    yield from run(tmp_path_factory.mktemp("plain"), None, request.param)


def outcomes(metrics: Scrape) -> Counter[tuple[str, str, str]]:
    """Requests by model, version and outcome."""
    counts: Counter[tuple[str, str, str]] = Counter()
    for labels, value in metrics.values(OUTCOMES):
        counts[labels["model"], labels["version"], labels["outcome"]] += int(value)
    return counts


def test_requests_count_for_their_model_on_every_path(plain: Stack) -> None:
    """The fast path, workers, TF Serving's API and refusals; what a client makes up shares a value."""
    first = scrape(plain)
    before = outcomes(first)
    plain.invoke(INSTANCES)
    plain.invoke(INSTANCES, **{ATTRIBUTES: "tfs-model-name=m,tfs-model-version=1"})
    plain.invoke(b"?", "application/x-unknown", **{ATTRIBUTES: "tfs-model-version=1"})
    plain.invoke(INSTANCES, **{ATTRIBUTES: "tfs-model-name=made-up"})
    plain.ask("POST", "/v1/models/m/versions/1:predict", INSTANCES, {"Content-Type": "application/json"})
    plain.ask("GET", "/nothing/here")
    expected = Counter(
        {
            ("m", "latest", "ok"): 1,
            ("m", "1", "ok"): 2,
            ("m", "1", "client_error"): 1,
            ("other", "other", "ok"): 1,  # the stand-in answers for any model
        }
    )
    plain.wait_until(lambda: outcomes(scrape(plain)) - before == expected, "all are counted")
    metrics = scrape(plain)

    assert (
        metrics.total(DURATIONS, model="m", version="1") == first.total(DURATIONS, model="m", version="1") + 3
    )
    assert metrics.total("tfs_proxy_request_bytes_total", model="m", version="1") >= 2 * len(INSTANCES)
    assert metrics.total("tfs_proxy_response_bytes_total", model="m", version="latest") > 0


def test_stages_of_requests_are_timed_and_outlive_the_worker(scripted: Stack) -> None:
    """Those that a request passes; a worker that is killed takes nothing along."""
    for _ in range(3):
        assert scripted.invoke(INSTANCES).status == 200
    scripted.wait_until(
        lambda: scrape(scripted).total(STAGES, stage="write", model="m") == 3, "the third is counted"
    )
    before = scrape(scripted)
    for pid in scripted.workers():
        os.kill(pid, signal.SIGKILL)
    scripted.wait_until(
        lambda: scripted.is_ready() and scripted.invoke(INSTANCES).status == 200, "it answers again"
    )
    scripted.wait_until(
        lambda: scrape(scripted).total(STAGES, stage="write", model="m") >= 4, "the fourth is counted"
    )

    for name in ("read", "input_handler", "model_server", "output_handler", "write"):
        assert before.total(STAGES, stage=name, model="m") == 3
    assert before.total("tfs_proxy_stage_duration_seconds_sum", stage="model_server") > 0


def test_records_are_counted_where_they_are_known(plain: Stack) -> None:
    """By a worker that reads them."""
    before = scrape(plain).total(f"{RECORDS}_count", model="m")
    answer = plain.invoke(INSTANCES, Accept="application/json;q=1")
    assert answer.status == 200
    plain.wait_until(lambda: scrape(plain).total(f"{RECORDS}_count", model="m") > before, "it is counted")

    metrics = scrape(plain)
    requests, records = (metrics.total(f"{RECORDS}_{part}", model="m") for part in ("count", "sum"))
    assert records == 2 * requests


@pytest.mark.parametrize("path", ["/invocations", "/v1/models/m:predict"])
def test_a_client_that_asks_gets_the_times_of_the_stages(plain: Stack, path: str) -> None:
    """Whatever path the request would take otherwise, and with the same answer."""
    headers = {"Content-Type": "application/json"}
    untimed = plain.ask("POST", path, INSTANCES, headers)
    timed = plain.ask("POST", path, INSTANCES, {**headers, "X-Tfs-Proxy-Timing": "1"})
    names = [part.partition(";dur=")[0] for part in timed.headers["server-timing"].split(", ")]

    assert (timed.status, timed.body) == (untimed.status, untimed.body) == (200, untimed.body)
    assert {"read", "model_server", "total"} <= set(names)
    assert "server-timing" not in untimed.headers
