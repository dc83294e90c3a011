"""The adaptive limit with many models: common workers share one, and a model with workers of its own has its own."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from support import gates
from support.archives import NEEDS_NGINX
from support.multi_model import MultiModelStack, script_model, serving_many
from support.scraping import scrape

pytestmark = [pytest.mark.tensorflow, NEEDS_NGINX]
JSON = "application/json"
ROWS = '{"instances": [1.0]}'
HOLDS = f"""
{gates.SCRIPT}

def model_fn(model_dir):
    return None


def predict_fn(data, model):
    hold(data)
    return data


def input_fn(body, content_type):
    return body.decode() if isinstance(body, bytes) else body


def output_fn(prediction, accept):
    return prediction
"""


@pytest.fixture(scope="module", params=["shared", "process"])
def limited(request: pytest.FixtureRequest) -> Iterator[MultiModelStack]:
    """Each worker with a limit, which is 1 in the beginning."""
    env = {
        "TFS_PROXY_MULTI_MODEL": request.param,
        "TFS_PROXY_ADAPTIVE_LIMIT": "200ms",
        "SAGEMAKER_GUNICORN_WORKERS": "1",
    }
    with serving_many(env=env) as stack:
        yield stack


def test_a_model_without_a_script_is_limited(
    limited: MultiModelStack, saved_models: Path, tmp_path: Path
) -> None:
    """Also for requests that could go past the workers; models are still listed meanwhile."""
    limited.loaded("gate", saved_models / "gate")
    with gates.gate(tmp_path / "gate") as held, ThreadPoolExecutor(1) as pool:
        body = json.dumps({"instances": [held.mark()]})
        first = pool.submit(limited.invoke_model, "gate", body, JSON)
        held.wait_for()
        refused = limited.invoke_model("gate", json.dumps({"instances": [held.mark("second")]}), JSON)
        assert limited.ask("GET", "/models").status == 200
        held.open()
        assert first.result().status == 200
    assert (refused.status, refused.headers["retry-after"]) == (503, "1")
    assert "try again" in refused.json["error"]
    assert limited.unload("gate").status == 200


def test_a_model_with_workers_of_its_own_has_a_limit_of_its_own(
    limited: MultiModelStack, saved_models: Path, tmp_path: Path
) -> None:
    """Requests for another model are answered while its only place is taken."""
    limited.loaded("other", saved_models / "half_plus_two")
    limited.loaded("holds", script_model(tmp_path / "holds.tar.gz", HOLDS))
    limited.wait_until(
        lambda: scrape(limited).total("tfs_proxy_adaptive_limit_requests") >= 2, "both have told their limits"
    )
    with gates.gate(tmp_path / "gate") as held, ThreadPoolExecutor(1) as pool:
        first = pool.submit(limited.invoke_model, "holds", held.mark())
        held.wait_for()
        refused = limited.invoke_model("holds", held.mark("second"))
        assert limited.invoke_model("other", ROWS, JSON).json == {"predictions": [2.5]}
        held.open()
        assert first.result().status == 200
    assert (refused.status, refused.headers["retry-after"]) == (503, "1")
