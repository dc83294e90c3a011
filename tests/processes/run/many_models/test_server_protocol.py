"""What Triton's and KServe's clients ask of a server whose models come and go, on real processes."""

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


def states(stack: MultiModelStack) -> dict[str, str]:
    """The index: the state of each model."""
    status, entries = asked(stack, "POST", "/v2/repository/index")
    assert status == 200
    return {entry["name"]: entry["state"] for entry in entries}


def test_models_are_loaded_listed_counted_and_unloaded(stack: MultiModelStack) -> None:
    """An archive by its own name, its models by theirs."""
    assert states(stack) == {"both": "UNAVAILABLE", "words": "UNAVAILABLE"}
    assert asked(stack, "POST", "/v2/repository/models/both/load") == (200, {})
    assert asked(stack, "POST", "/v2/repository/models/words/load") == (200, {})
    served = ["both.half_plus_three", "both.half_plus_two"]
    assert states(stack) == dict.fromkeys([*served, "words"], "READY")
    assert asked(stack, "GET", "/v1/models") == (200, {"models": served})
    status, body = asked(stack, "GET", f"/v1/models/{served[1]}")
    assert (status, body["ready"]) == (200, True)

    assert asked(stack, "POST", f"/v1/models/{served[1]}:predict", ROWS) == (200, {"predictions": [2.5]})
    assert stack.invoke_model("words", "x").status == 200
    counted = [served[1], "words"]
    stack.wait_until(lambda: {inferences(stack, name) for name in counted} == {1}, "both are counted")
    assert inferences(stack, served[0]) == 0

    assert asked(stack, "POST", "/v2/repository/models/both/unload") == (200, {})
    assert states(stack) == {"both": "UNAVAILABLE", "words": "READY"}
    assert asked(stack, "GET", f"/v2/models/{served[1]}/stats")[0] == 404


def inferences(stack: MultiModelStack, name: str) -> int:
    """How many inferences of a model have gone well."""
    status, body = asked(stack, "GET", f"/v2/models/{name}/stats")
    assert status == 200
    return sum(stats["inference_count"] for stats in body["model_stats"])


def test_the_server_is_ready_without_a_model(stack: MultiModelStack) -> None:
    """Models can be loaded here, and the extension says so."""
    assert asked(stack, "GET", "/") == (200, {"status": "alive"})
    assert asked(stack, "GET", "/v2/health/ready") == (200, {"live": True, "ready": True})
    assert "model_repository" in asked(stack, "GET", "/v2")[1]["extensions"]


def test_a_model_s_own_requests_reach_its_workers(stack: MultiModelStack) -> None:
    """By each of its names, loaded by the first one; a name that no archive can have is unknown."""
    unknown = asked(stack, "GET", "/v2/models/nowhere/ready")
    assert unknown == (404, {"error": "model nowhere is not loaded"})
    assert asked(stack, "GET", "/v2/models/both.no_such/ready")[0] == 404

    name = "both.half_plus_two"
    assert asked(stack, "GET", f"/v2/models/{name}/ready") == (200, {"name": name, "ready": True})
    assert states(stack)[name] == "READY"
    assert asked(stack, "GET", "/v2/models/words/ready") == (200, {"name": "words", "ready": True})
