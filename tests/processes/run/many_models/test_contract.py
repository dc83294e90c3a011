"""SageMaker's multi-model contract, call by call, on a real stack: codes and bodies."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from support.archives import NEEDS_NGINX, SAVED_MODEL, pack
from support.multi_model import MultiModelStack, saying, script_model, serving_many
from support.scraping import scrape

pytestmark = [pytest.mark.tensorflow, NEEDS_NGINX]
UNTAGGED = SAVED_MODEL.replace(b"serve", b"train")


UNSERVABLE: Mapping[str, tuple[Mapping[str, str | bytes], str]] = {
    "a script that can't be imported": (
        {"code/inference.py": "import nothing_of_this_name\n\n\ndef model_fn(model_dir): ...\n"},
        "No module named 'nothing_of_this_name'",
    ),
    "a script that ends its process": (
        {"code/inference.py": "import os\n\n\ndef model_fn(model_dir):\n    os._exit(3)\n"},
        "code/inference.py can't be imported: it ends the worker that imports it",
    ),
    "a SavedModel that can't be loaded": ({"m/1/saved_model.pb": UNTAGGED}, "can't be loaded: "),
}


@pytest.mark.parametrize("case", UNSERVABLE)
def test_what_cannot_be_served_is_a_400(many: MultiModelStack, tmp_path: Path, case: str) -> None:
    """With the reason, and nothing is left."""
    files, words = UNSERVABLE[case]
    name = f"bad{list(UNSERVABLE).index(case)}"
    before = scrape(many).total("tfs_proxy_model_loads_total", outcome="not_servable")

    answer = many.load(name, pack(tmp_path / "bad.tar.gz", files))

    assert answer.status == 400, answer.body
    assert words in answer.json["error"]
    assert many.described(name).status == 404
    assert name not in many.urls()
    assert scrape(many).total("tfs_proxy_model_loads_total", outcome="not_servable") == before + 1


def test_more_models_than_may_be_loaded_are_a_507(tmp_path: Path) -> None:
    """The platform unloads another one then, and tries again."""
    archive = script_model(tmp_path / "a.tar.gz", saying("a"))
    with serving_many(env={"TFS_PROXY_MAX_LOADED_MODELS": "1"}) as stack:
        stack.loaded("a", archive)
        refused = stack.load("b", archive)
        assert refused.status == 507
        assert "TFS_PROXY_MAX_LOADED_MODELS=1" in refused.json["error"]
        assert stack.described("b").status == 404
        assert stack.answers("a", "x")
        assert stack.unload("a").status == 200
        stack.loaded("b", archive)
        loads = scrape(stack).values("tfs_proxy_model_loads_total")
        assert {labels["outcome"]: count for labels, count in loads} == {"loaded": 2, "no_resources": 1}
        assert scrape(stack).total("tfs_proxy_model_loads_seconds_total") > 0


def test_an_archive_with_several_models(many: MultiModelStack, saved_models: Path, tmp_path: Path) -> None:
    """In the model server they are NAME.INNER; requests say INNER, and the first by name is the default."""
    folders = {"two": saved_models / "half_plus_two", "three": saved_models / "half_plus_three"}
    many.loaded("pair", pack(tmp_path / "pair.tar.gz", {}, folders))

    def invoke(attributes: str) -> object:
        headers = {"Content-Type": "application/json", "X-Amzn-SageMaker-Custom-Attributes": attributes}
        answer = many.ask("POST", "/models/pair/invoke", '{"instances": [1.0]}', headers)
        return answer.json.get("predictions") or answer.status

    assert [invoke(""), invoke("tfs-model-name=three")] == [[3.5], [3.5]]
    assert [invoke("tfs-model-name=two"), invoke("tfs-model-name=pair.two")] == [[2.5], [2.5]]
    assert invoke("tfs-model-name=pair") == 404
    predict = many.ask("POST", "/v1/models/pair.two:predict", '{"inputs": [1.0]}')
    assert (predict.status, predict.json) == (200, {"outputs": [2.5]})
    assert many.ask("GET", "/v1/models/pair").status == 404
    assert many.invoke_model("pair.two", '{"instances": [1.0]}').status == 404
    taken = many.load("pair.two", saved_models / "half_plus_two")
    assert (taken.status, taken.json["error"]) == (
        409,
        "model pair.two can't be loaded: pair.two is a name of pair",
    )
    counted = "tfs_proxy_model_requests_total"
    many.wait_until(lambda: scrape(many).total(counted, model="pair", outcome="ok") == 4, "all are counted")
    assert many.unload("pair").status == 200
    assert many.ask("GET", "/v1/models/pair.two").status == 404


def test_requests_reach_no_model_of_another_archive(many: MultiModelStack, saved_models: Path) -> None:
    """Whatever names a request has, also where all models are in one model server."""
    many.loaded("half", saved_models / "half_plus_two")
    many.loaded("own", saved_models / "half_plus_three")
    named = {"X-Amzn-SageMaker-Custom-Attributes": "tfs-model-name=half"}

    answer = many.ask("POST", "/models/own/invoke", '{"instances": [1.0]}', named)

    assert answer.status == 404
    assert 'There is no model "half"' in answer.json["error"]
    assert {many.unload(name).status for name in ("half", "own")} == {200}


def test_failed_requests_count_by_model_and_stage(many: MultiModelStack, saved_models: Path) -> None:
    """As those of one model, whichever workers have answered; a model that has gone leaves no series of its own."""

    def errors() -> dict[tuple[str, str], float]:
        values = scrape(many).values("tfs_proxy_stage_errors_total")
        failed = ((labels["stage"], labels["model"], value) for labels, value in values)
        return {(stage, model): value for stage, model, value in failed if model.startswith("failing-")}

    for name in ("failing-1", "failing-2"):
        many.loaded(name, saved_models / "half_plus_two")
        assert many.invoke_model(name, '{"instances": ["a"]}', "application/json").status == 400
        assert many.invoke_model(name, "a,b\nc", "text/csv").status == 400
    many.wait_until(lambda: sum(errors().values()) >= 4, "all failed requests are counted")
    assert {stage for stage, _ in errors()} == {"convert", "model_server"}
    assert {model for _, model in errors()} == {"failing-1", "failing-2"}
    assert many.unload("failing-1").status == 200
    many.wait_until(lambda: {model for _, model in errors()} == {"failing-2"}, "its series are gone")
    assert many.unload("failing-2").status == 200
