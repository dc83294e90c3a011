"""What `/metrics` says of each model, and of the stages of its requests."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.archives import NEEDS_NGINX, stand_in_words
from support.scraping import scrape
from support.stack import Stack, serving

INSTANCES = b'{"instances": [1.0, 2.0]}'
pytestmark = NEEDS_NGINX
SCRIPT = """
def input_handler(data, context):
    return data.read()


def output_handler(response, context):
    return response.content, "application/json"
"""
STAGES = "tfs_proxy_stage_duration_seconds_count"
RECORDS = "tfs_proxy_request_records"


@pytest.fixture
def scripted(tmp_path: Path) -> Iterator[Stack]:
    """A model with a script."""
    with serving(*stand_in_words(tmp_path, SCRIPT)) as running:
        yield running


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


def test_records_are_counted_where_they_are_known(stand_in: Stack) -> None:
    """By a worker that reads them."""
    before = scrape(stand_in).total(f"{RECORDS}_count", model="m")
    answer = stand_in.invoke(INSTANCES, Accept="application/json;q=1")
    assert answer.status == 200
    stand_in.wait_until(
        lambda: scrape(stand_in).total(f"{RECORDS}_count", model="m") > before, "it is counted"
    )

    metrics = scrape(stand_in)
    requests, records = (metrics.total(f"{RECORDS}_{part}", model="m") for part in ("count", "sum"))
    assert records == 2 * requests


@pytest.mark.parametrize("path", ["/invocations", "/v1/models/m:predict"])
def test_a_client_that_asks_gets_the_times_of_the_stages(stand_in: Stack, path: str) -> None:
    """Whatever path the request would take otherwise, and with the same answer."""
    headers = {"Content-Type": "application/json"}
    untimed = stand_in.ask("POST", path, INSTANCES, headers)
    timed = stand_in.ask("POST", path, INSTANCES, {**headers, "X-Tfs-Proxy-Timing": "1"})
    names = [part.partition(";dur=")[0] for part in timed.headers["server-timing"].split(", ")]

    assert (timed.status, timed.body) == (untimed.status, untimed.body) == (200, untimed.body)
    assert {"read", "model_server", "total"} <= set(names)
    assert "server-timing" not in untimed.headers
