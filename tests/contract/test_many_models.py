"""Multi-model's calls, and models that the first request loads."""

import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest

from contract.conftest import Check, Start
from contract.doors import BARE, JSON, ONE, Answer, Running
from contract.stacks import archives

pytestmark = pytest.mark.tensorflow


GRPC_REFUSALS = {
    "PredictionService/Predict": "NOT_FOUND",
    "ModelService/HandleReloadConfigRequest": "UNIMPLEMENTED",
}
OF_NOPE = b"\x0a\x06\x0a\x04nope"
"""A PredictRequest whose model_spec names the model `nope`."""


@pytest.fixture
def many(stacks: Start) -> Running:
    """A run without a model."""
    return stacks("many")


@pytest.fixture(scope="session")
def folder(saved_models: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Archives to load."""
    return archives(saved_models, tmp_path_factory.mktemp("archives"))


def load(running: Running, name: str, path: Path | str) -> Answer:
    """POST /models."""
    return running.ask("POST", "/models", json.dumps({"model_name": name, "url": str(path)}), JSON)


def invoke(running: Running, name: str, body: str = ONE, headers: Mapping[str, str] = JSON) -> Answer:
    """POST /models/NAME/invoke."""
    return running.ask("POST", f"/models/{name}/invoke", body, headers)


def names(running: Running) -> list[str]:
    """The models that GET /models lists."""
    return [model["modelName"] for model in running.ask("GET", "/models").json["models"]]


def test_load_list_get_invoke_unload(many: Running, folder: Path) -> None:
    """A model's life, with the bodies that SageMaker's platform reads."""
    url = str(folder / "plain.tar.gz")
    assert names(many) == []
    assert (loaded := load(many, "half", url)).json == {"message": "model half is loaded"}, loaded.body
    assert many.ask("GET", "/models").json == {"models": [{"modelName": "half", "modelUrl": url}]}
    assert many.ask("GET", "/models/half").json == {"modelName": "half", "modelUrl": url}
    assert invoke(many, "half").json == {"predictions": [2.5]}
    assert invoke(many, "half", "1.0\n", {"Content-Type": "text/csv"}).json == {"predictions": [2.5]}
    assert many.ask("GET", "/v1/models/half").json["model_version_status"][0]["state"] == "AVAILABLE"
    assert many.ask("POST", "/v1/models/half:predict", ONE, JSON).json == {"predictions": [2.5]}
    assert many.ask("GET", "/v2/models/half/ready").status == 200
    assert load(many, "half", url).status == 409
    assert many.ask("DELETE", "/models/half").json == {"message": "model half is unloaded"}
    assert names(many) == []
    assert invoke(many, "half").status == 404
    assert many.ask("GET", "/ping").status == 200


def test_scripts_of_many_models(many: Running, folder: Path, recorded: Check) -> None:
    """`handler` with init, a stream that breaks off, and a script that is the model, loaded at the same time."""
    with ThreadPoolExecutor(3) as pool:
        kinds = ("handler", "stream", "model_fn")
        loaded = pool.map(lambda name: load(many, name, folder / f"{name}.tar.gz"), kinds)
        assert [answer.status for answer in loaded] == [200] * 3
    assert sorted(names(many)) == sorted(kinds)
    seen = invoke(many, "handler", "{}").json
    assert (seen.pop("request_id"), seen["values"].pop("model_name")) != ("", "")
    recorded("script_api", "a context of handler, among many models", seen)
    assert invoke(many, "stream", "one two", {"Content-Type": "text/plain"}).body == b"one\ntwo\n"
    with pytest.raises(Exception, match=r"IncompleteRead|peer"):
        invoke(many, "stream", "one break", {"Content-Type": "text/plain"})
    doubled = invoke(many, "model_fn", "1,2\n", {"Content-Type": "text/csv", "Accept": "text/csv"})
    assert (doubled.body, doubled.headers["x-amzn-sagemaker-custom-attributes"]) == (
        b"2.0,4.0\n",
        "doubled=yes",
    )
    for name in kinds:
        assert many.ask("DELETE", f"/models/{name}").status == 200


REFUSALS: Mapping[str, tuple[str, str, Mapping[str, str] | None]] = {
    "load without a name": ("POST", "/models", {"url": "plain.tar.gz"}),
    "load of a bad name": ("POST", "/models", {"model_name": "../a", "url": "plain.tar.gz"}),
    "load of nothing": ("POST", "/models", {"model_name": "a", "url": "not_there.tar.gz"}),
    "load of no archive": ("POST", "/models", {"model_name": "a", "url": "nothing.tar.gz"}),
    "load of a broken script": ("POST", "/models", {"model_name": "a", "url": "broken.tar.gz"}),
    "page of no token": ("GET", "/models?next_page_token=!", None),
    "get": ("GET", "/models/nope", None),
    "unload": ("DELETE", "/models/nope", None),
    "invoke": ("POST", "/models/nope/invoke", {}),
    "invocations": ("POST", "/invocations", {}),
    "v1": ("GET", "/v1/models/nope", None),
    "v2": ("GET", "/v2/models/nope", None),
    "method": ("PUT", "/models", {}),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_refusals(many: Running, folder: Path, recorded: Check, name: str) -> None:
    """Status and first words; nothing is loaded after them."""
    method, path, document = REFUSALS[name]
    if document and "url" in document:
        document = {**document, "url": str(folder / document["url"])}
    answer = many.ask(method, path, None if document is None else json.dumps(document), JSON)

    recorded("many_models", name, [answer.status, answer.first_words.replace(str(folder), "FOLDER")])
    assert "a" not in names(many)


def test_the_open_inference_protocol(many: Running, folder: Path) -> None:
    """An inference by the name that the model was loaded as."""
    assert load(many, "second", folder / "plain.tar.gz").status == 200
    tensor = {"name": "x", "datatype": "FP32", "shape": [1], "data": [1.0]}
    answer = many.ask("POST", "/v2/models/second/infer", json.dumps({"inputs": [tensor]}), JSON)
    assert (answer.status, answer.json["outputs"][0]["data"]) == (200, [2.5])
    assert many.ask("DELETE", "/models/second").status == 200


def test_grpc_of_no_model(many: Running) -> None:
    """NOT_FOUND for a model that is not loaded, UNIMPLEMENTED for a method that is not published."""
    with grpc.insecure_channel(many.grpc) as channel:
        for method, code in GRPC_REFUSALS.items():
            with pytest.raises(grpc.RpcError) as caught:
                channel.unary_unary(f"/tensorflow.serving.{method}")(OF_NOPE, timeout=60)
            assert caught.value.code().name == code


def test_the_first_request_loads_an_archive_of_a_folder(stacks: Start) -> None:
    """As TargetModel names it, or by its name; what can't be served is a 400, what is not there a 404."""
    running = stacks("folder")

    def target(path: str) -> Answer:
        return running.invoke(ONE, **{"X-Amzn-SageMaker-Target-Model": path})

    assert target("plain.tar.gz").json == {"predictions": [2.5]}
    assert "plain" in names(running)
    assert invoke(running, "plain").json == {"predictions": [2.5]}
    assert [target(path).status for path in ("nothing.tar.gz", "nope.tar.gz", "../plain.tar.gz")] == [
        400,
        404,
        400,
    ]
    assert load(running, "outside", "/etc/hostname").status in {400, 404}
    assert running.ask("DELETE", "/models/plain").status == 200


def test_without_nginx_it_is_refused_at_the_start() -> None:
    """As the page says."""
    running = Running("serve", env={**BARE, "SAGEMAKER_MULTI_MODEL": "true"})
    try:
        assert running.wait() == 2
        assert "TFS_PROXY_NGINX" in running.log
    finally:
        running.close()
