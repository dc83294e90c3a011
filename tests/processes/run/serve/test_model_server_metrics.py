"""The model servers' own metrics in /metrics: of all instances, with legal names, and never waited for."""

import os
import signal
from pathlib import Path

import pytest

from support.archives import NEEDS_NGINX, stand_in_words
from support.scraping import scrape, scrape_open_metrics
from support.stack import Stack, serving

COUNT = "tensorflow_serving_request_count_total"
AGE = "tfs_proxy_model_server_metrics_age_seconds"
pytestmark = NEEDS_NGINX
JSON = {"Content-Type": "application/json"}


def shown(stack: Stack, server: str) -> float:
    """How many requests this model server has counted, as /metrics shows it."""
    return scrape(stack).total(COUNT, server=server)


def test_all_instances_are_shown_with_their_number(tmp_path: Path) -> None:
    """In both formats, and again after the death of one."""
    env = {"SAGEMAKER_TFS_INSTANCE_COUNT": "2"}
    with serving(*stand_in_words(tmp_path), env=env) as stack:
        for _ in range(10):
            assert stack.ask("POST", "/v1/models/m:predict", b"{}", JSON).status == 200
        stack.wait_until(lambda: shown(stack, "0") + shown(stack, "1") == 10, "all requests are shown")
        text = scrape_open_metrics(stack)
        os.kill(stack.children()["model_server"][0], signal.SIGKILL)
        stack.wait_until(lambda: shown(stack, "0") + shown(stack, "1") < 10, "one has begun anew")
        stack.wait_until(lambda: len(list(scrape(stack).values(AGE))) == 2, "both are shown again")

    assert {labels["server"] for labels, _ in text.values(COUNT)} == {"0", "1"}
    assert text.total("tensorflow_serving_request_latency_bucket", le="+Inf") == 10
    assert text.total("tensorflow_serving_request_latency_bucket", le="10.0") == 0


@pytest.mark.slow
def test_a_model_server_that_hangs_holds_nothing_up(tmp_path: Path) -> None:
    """Everything else is shown, and at once."""
    with serving(*stand_in_words(tmp_path), env={"STAND_IN_SILENT": "1"}) as stack:
        scrapes = [scrape(stack) for _ in range(20)]

    assert all(metrics.total("tfs_proxy_ready") == 1 for metrics in scrapes)
    assert not any(list(metrics.values(COUNT)) for metrics in scrapes)
    assert not any(list(metrics.values(AGE)) for metrics in scrapes)


@pytest.mark.slow
@pytest.mark.tensorflow
def test_the_embedded_server_shows_its_requests(saved_models: Path) -> None:
    """Requests by model, and latencies, with batching, too."""
    env = {
        "SAGEMAKER_TFS_ENABLE_BATCHING": "true",
        "SAGEMAKER_TFS_DEFAULT_MODEL_NAME": "half_plus_two",
    }
    latency = "tensorflow_serving_request_latency_count"
    with serving(str(saved_models), "--model-server", "embedded", env=env) as stack:
        for _ in range(3):
            assert (
                stack.ask("POST", "/v1/models/half_plus_two:predict", b'{"instances": [1.0]}', JSON).status
                == 200
            )
        stack.wait_until(lambda: scrape(stack).total(latency, server="0") == 3, "the requests are shown")
        metrics = scrape_open_metrics(stack)

    assert metrics.total(COUNT, model_name="half_plus_two", status="OK", server="0") == 3
    assert metrics.total(latency, model_name="half_plus_two") == 3
