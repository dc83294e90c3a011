"""SageMaker's multi-model contract, call by call, on a real stack: codes and bodies."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from support.archives import NEEDS_NGINX, SAVED_MODEL, pack
from support.multi_model import MultiModelStack, saying, script_model, serving_many
from support.scraping import scrape

pytestmark = [pytest.mark.tensorflow, NEEDS_NGINX]
SHAPE = '{"model_name": "NAME", "url": "/PATH/TO/MODEL"}'

UNTAGGED = SAVED_MODEL.replace(b"serve", b"train")


@pytest.fixture(scope="module")
def half(many: MultiModelStack, saved_models: Path) -> Iterator[str]:
    """A TensorFlow model that is loaded, y = x / 2 + 2; its name."""
    many.loaded("half", saved_models / "half_plus_two")
    yield "half"
    assert many.unload("half").status == 200


def test_a_model_from_its_load_to_its_unload(many: MultiModelStack, tmp_path: Path) -> None:
    """Every call of the contract in turn, with its code and its body."""
    url = str(script_model(tmp_path / "a.tar.gz", saying("a")))
    load = json.dumps({"model_name": "whole", "url": url})
    unknown = {"error": "model whole is not loaded"}
    calls = [
        ("GET", "/models/whole", None, 404, unknown),
        ("POST", "/models/whole/invoke", "x", 404, unknown),
        ("DELETE", "/models/whole", None, 404, unknown),
        ("POST", "/models", load, 200, {"message": "model whole is loaded"}),
        ("POST", "/models", load, 409, {"error": f"model whole is loaded already, from {url}"}),
        ("GET", "/models/whole", None, 200, {"modelName": "whole", "modelUrl": url}),
        ("DELETE", "/models/whole", None, 200, {"message": "model whole is unloaded"}),
        ("GET", "/models/whole", None, 404, unknown),
        ("DELETE", "/models/whole", None, 404, unknown),
        ("POST", "/models/whole/invoke", "x", 404, unknown),
    ]
    for method, path, body, status, answer in calls:
        given = many.ask(method, path, body, {"Content-Type": "application/json"})
        assert (given.status, given.json) == (status, answer), (method, path)
        assert given.headers["content-type"] == "application/json"


NOT_LOAD_REQUESTS = {
    "not JSON": ("url=/x", f"the body is not JSON; send {SHAPE}"),
    "empty": ("", f"the body is not JSON; send {SHAPE}"),
    "a list": ("[]", f"the body is not a JSON object; send {SHAPE}"),
    "no url": ('{"model_name": "a"}', f"url is missing; send {SHAPE}"),
    "no name": ('{"url": "/x"}', f"model_name is missing; send {SHAPE}"),
    "a number": ('{"model_name": 1, "url": "/x"}', f"model_name is not a text, or is empty; send {SHAPE}"),
    "a relative path": ('{"model_name": "a", "url": "x"}', "url is not an absolute path on this machine"),
}


@pytest.mark.parametrize("case", NOT_LOAD_REQUESTS)
def test_what_is_not_a_load_request_is_a_400(many: MultiModelStack, case: str) -> None:
    """The sentence names the field, and shows what is asked for."""
    body, sentence = NOT_LOAD_REQUESTS[case]

    answer = many.ask("POST", "/models", body, {"Content-Type": "application/json"})

    assert (answer.status, answer.json) == (400, {"error": f"not a load request: {sentence}"})


@pytest.mark.parametrize("name", ["../a", "a/b", "-a", "a" * 65, "ä"])
def test_a_name_that_no_model_can_have_is_a_400(many: MultiModelStack, tmp_path: Path, name: str) -> None:
    """Names become paths of sockets and of URLs."""
    answer = many.load(name, script_model(tmp_path / "a.tar.gz", saying("a")))

    assert answer.status == 400
    assert "model_name can't be a model's name" in answer.json["error"]


def test_a_load_of_nothing_is_a_404(many: MultiModelStack, tmp_path: Path) -> None:
    """The path is in the sentence."""
    answer = many.load("nothing", tmp_path / "nowhere")

    assert answer.status == 404
    assert answer.json["error"].startswith(f"There is no file or folder {tmp_path / 'nowhere'}")


UNSERVABLE: Mapping[str, tuple[Mapping[str, str | bytes], str]] = {
    "no model": ({"notes.txt": "x"}, "No SavedModel was found in"),
    "a script without a function": ({"code/inference.py": "x = 1\n"}, "must define model_fn(model_dir)"),
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

    answer = many.load(name, pack(tmp_path / "bad.tar.gz", files))

    assert answer.status == 400, answer.body
    assert words in answer.json["error"]
    assert many.described(name).status == 404
    assert name not in many.urls()


def test_a_name_whose_load_has_failed_is_free(many: MultiModelStack, tmp_path: Path) -> None:
    """The next load of that name may bring what works."""
    assert many.load("second-try", pack(tmp_path / "bad.tar.gz", {"notes.txt": "x"})).status == 400
    many.loaded("second-try", script_model(tmp_path / "good.tar.gz", saying("good")))
    assert many.unload("second-try").status == 200


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


def test_a_request_without_a_model_is_a_404_that_says_how(many: MultiModelStack) -> None:
    """/invocations is for one model, unless a folder is served."""
    answer = many.invoke('{"instances": [1.0]}')

    assert answer.status == 404
    assert "/models/NAME/invoke" in answer.json["error"]
    assert "--multi-model" in answer.json["error"]


def test_a_model_answers_as_one_served_alone(many: MultiModelStack, half: str) -> None:
    """Content types, Accept, attributes, TF Serving's API and metadata, by the same code."""
    path = f"/models/{half}/invoke"
    json_type = {"Content-Type": "application/json"}
    rows = many.ask("POST", path, b"1.0\n2.0\n", {"Content-Type": "text/csv", "Accept": "text/csv"})

    assert many.ask("POST", path, '{"instances": [1.0, 5.0]}', json_type).json == {"predictions": [2.5, 4.5]}
    assert (rows.status, rows.body) == (200, b"2.5\n3.0\n")
    assert many.ask("POST", path, '{"instances": ["a"]}', json_type).status == 400
    assert many.ask("POST", path, b"\x89PNG", {"Content-Type": "image/png"}).status == 415
    predict = many.ask("POST", f"/v1/models/{half}:predict", '{"inputs": [1.0]}', json_type)
    assert (predict.status, predict.json) == (200, {"outputs": [2.5]})
    status = many.ask("GET", f"/v1/models/{half}").json
    assert status["model_version_status"][0]["state"] == "AVAILABLE"


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


def test_requests_reach_no_model_of_another_archive(
    many: MultiModelStack, saved_models: Path, half: str
) -> None:
    """Whatever names a request has, also where all models are in one model server."""
    many.loaded("own", saved_models / "half_plus_three")
    named = {"X-Amzn-SageMaker-Custom-Attributes": f"tfs-model-name={half}"}

    answer = many.ask("POST", "/models/own/invoke", '{"instances": [1.0]}', named)

    assert answer.status == 404
    assert f'There is no model "{half}"' in answer.json["error"]
    assert many.unload("own").status == 200


def test_lists_have_every_model_once(many: MultiModelStack, tmp_path: Path) -> None:
    """By name, with its URL."""
    url = script_model(tmp_path / "a.tar.gz", saying("a"))
    for name in ("list.b", "list.a"):
        many.loaded(name, url)

    listed = [name for name in many.urls() if name.startswith("list.")]

    assert listed == ["list.a", "list.b"]
    assert many.urls()["list.a"] == str(url)
    assert {many.unload(name).status for name in listed} == {200}
    assert not {"list.a", "list.b"} & set(many.urls())


def test_requests_are_counted_by_model(many: MultiModelStack, half: str) -> None:
    """In /metrics, by the name that it was loaded as."""
    requests = "tfs_proxy_model_requests_total"
    before = scrape(many).total(requests, model=half, outcome="ok")
    json_type = {"Content-Type": "application/json"}
    for _ in range(3):
        many.ask("POST", f"/models/{half}/invoke", '{"instances": [1.0]}', json_type)

    many.wait_until(
        lambda: scrape(many).total(requests, model=half, outcome="ok") == before + 3, "all are counted"
    )


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
    assert {model for _, model in errors()} == {"failing-2"}
    assert many.unload("failing-2").status == 200
