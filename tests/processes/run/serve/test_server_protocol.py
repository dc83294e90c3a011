"""What clients of the Open Inference Protocol ask of the server itself, and the times of stages."""

import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from support.archives import NEEDS_NGINX, stand_in_words
from support.scraping import scrape
from support.stack import Stack, serving

pytestmark = NEEDS_NGINX
INSTANCES = b'{"instances": [1.0, 2.0]}'
STAGES = "tfs_proxy_stage_duration_seconds_count"
SCRIPT = """
def input_handler(data, context):
    return data.read()


def output_handler(response, context):
    return response.content, "application/json"
"""


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A model with a script, so that every request to /invocations has stages."""
    folder = tmp_path_factory.mktemp("server")
    with serving(*stand_in_words(folder, SCRIPT)) as running:
        yield running


def asked(stack: Stack, method: str, path: str, body: str | None = None) -> tuple[int, Any]:
    """Status and parsed body."""
    answer = stack.ask(method, path, body)
    assert answer.headers["content-type"] == "application/json"
    return answer.status, answer.json


def test_stages_of_requests_are_timed_and_outlive_the_worker(stack: Stack) -> None:
    """Those that a request passes; a worker that is killed takes no more along than its last second."""
    for _ in range(3):
        assert stack.invoke(INSTANCES).status == 200
    stack.wait_until(
        lambda: scrape(stack).total(STAGES, stage="write", model="m") == 3, "the third is counted"
    )
    before = scrape(stack)
    for pid in stack.workers():
        os.kill(pid, signal.SIGKILL)
    stack.wait_until(lambda: stack.is_ready() and stack.invoke(INSTANCES).status == 200, "it answers again")
    stack.wait_until(
        lambda: scrape(stack).total(STAGES, stage="write", model="m") >= 4, "the fourth is counted"
    )

    for name in ("read", "input_handler", "model_server", "output_handler", "write"):
        assert before.total(STAGES, stage=name, model="m") == 3
    assert before.total("tfs_proxy_stage_duration_seconds_sum", stage="model_server") > 0


def test_the_server_says_what_it_is(stack: Stack) -> None:
    """Alive, ready, with the one model that it serves."""
    assert asked(stack, "GET", "/") == (200, {"status": "alive"})
    assert asked(stack, "GET", "/v2/health/live") == (200, {"live": True})
    assert asked(stack, "GET", "/v2/health/ready") == (200, {"live": True, "ready": True})
    assert asked(stack, "GET", "/v2")[1]["name"] == "tfs_proxy"
    assert asked(stack, "GET", "/v2/") == asked(stack, "GET", "/v2")
    assert stack.ask("HEAD", "/v2/health/ready").status == 200


def test_kserve_s_list_has_the_models(stack: Stack) -> None:
    """And the status of each says whether it is ready."""
    assert asked(stack, "GET", "/v1/models") == (200, {"models": ["m"]})
    status, body = asked(stack, "GET", "/v1/models/m")

    assert status == 200
    assert body["ready"] is True
    assert body["model_version_status"][0]["state"] == "AVAILABLE"
