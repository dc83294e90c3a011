"""What clients of the Open Inference Protocol ask of a server whose models come and go, on real processes."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.archives import NEEDS_NGINX, pack
from support.multi_model import LONG_SECONDS, MultiModelStack, saying, script_model, serving_many

pytestmark = [
    pytest.mark.tensorflow,
    NEEDS_NGINX,
]
ROWS = '{"instances": [1.0]}'


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory, saved_models: Path) -> Iterator[MultiModelStack]:
    """A folder with a script model, and an archive with two models."""
    folder = tmp_path_factory.mktemp("archives")
    script_model(folder / "words.tar.gz", saying("words"))
    models = {name: saved_models / name for name in ("half_plus_two", "half_plus_three")}
    pack(folder / "both.tar.gz", {}, models)
    with serving_many("--multi-model", str(folder)) as running:
        yield running


def asked(stack: MultiModelStack, method: str, path: str, body: str | None = None) -> tuple[int, Any]:
    """Status and parsed body."""
    answer = stack.ask(method, path, body, timeout=LONG_SECONDS)
    return answer.status, answer.json


def test_the_list_has_the_models_that_serve(stack: MultiModelStack) -> None:
    """By the names that the model server has for them; an archive is loaded by any of its models' requests."""
    served = ["both.half_plus_three", "both.half_plus_two"]
    assert asked(stack, "GET", "/v1/models") == (200, {"models": []})
    assert asked(stack, "POST", f"/v1/models/{served[1]}:predict", ROWS) == (200, {"predictions": [2.5]})
    assert asked(stack, "GET", "/v1/models") == (200, {"models": served})
    status, body = asked(stack, "GET", f"/v1/models/{served[1]}")
    assert (status, body["ready"]) == (200, True)
    assert asked(stack, "DELETE", "/models/both")[0] == 200


def test_the_server_is_ready_without_a_model(stack: MultiModelStack) -> None:
    assert asked(stack, "GET", "/") == (200, {"status": "alive"})
    assert asked(stack, "GET", "/v2/health/ready") == (200, {"live": True, "ready": True})
    assert asked(stack, "GET", "/v2")[1]["extensions"] == ["binary_tensor_data"]
    for path in ("/v2/repository/index", "/v2/repository/models/both/load"):
        assert asked(stack, "POST", path)[0] == 404


def test_a_model_s_own_requests_reach_its_workers(stack: MultiModelStack) -> None:
    """By each of its names, loaded by the first one; a name that no archive can have is unknown."""
    unknown = asked(stack, "GET", "/v2/models/nowhere/ready")
    assert unknown == (404, {"error": "model nowhere is not loaded"})
    assert asked(stack, "GET", "/v2/models/both.no_such/ready")[0] == 404

    name = "both.half_plus_two"
    assert asked(stack, "GET", f"/v2/models/{name}/ready") == (200, {"name": name, "ready": True})
    for path in (f"/v2/models/{name}/stats", f"/v2/models/{name}/config"):
        assert asked(stack, "GET", path)[0] == 404
    assert asked(stack, "GET", "/v2/models/words/ready") == (200, {"name": "words", "ready": True})
