"""The script API: every name that scripts may use, what it has for a request, and all contracts of functions."""

import inspect
import json
from pathlib import Path
from typing import Any

import pytest

import tfs_proxy
import tfs_proxy.testing
from contract.conftest import Check, Start
from contract.doors import ONE, Running, pack
from contract.scripts import HALVES, HANDLER, REPORT, SCRIPT_MODEL
from tfs_proxy.testing import TensorSpec, signature

pytestmark = pytest.mark.tensorflow

HALF = signature({"x": TensorSpec("x", "DT_FLOAT", (None,))}, {"y": TensorSpec("y", "DT_FLOAT", (None,))})
NAMES = (
    REPORT
    + """
import requests


def input_handler(data, context):
    NAMES["context"] = public(context)
    return "[1.0]"


def output_handler(response, context):
    NAMES["ModelResponse"] = public(response)
    return json.dumps(NAMES)


NAMES = {"tfs_proxy": list(tfs_proxy.__all__)}
"""
)
CALLED = """
Response Request HTTPError describe
Context.predict Context.predict_async Context.default_input Context.default_output Context.set_custom_attributes
testing.load testing.signature testing.LoadedScript.post testing.LoadedScript.openapi testing.Reply testing.TensorSpec
"""


def parameters(function: Any) -> list[str]:
    """Its parameters with their defaults, without their types; those that must be named begin with a *."""
    return [
        ("*" if each.kind is each.KEYWORD_ONLY else "") + str(each.replace(annotation=each.empty))
        for each in inspect.signature(function).parameters.values()
    ]


def test_names(recorded: Check, tmp_path: Path) -> None:
    """Of the package, of a context and of a model server's response."""
    (tmp_path / "inference.py").write_text(NAMES)
    with tfs_proxy.testing.load(tmp_path / "inference.py", signatures=HALF) as script:
        names = script.post("{}").json

    for thing, found in names.items():
        recorded("script_api", thing, found)
    recorded("script_api", "tfs_proxy.testing", sorted(tfs_proxy.testing.__all__))


@pytest.mark.parametrize("path", CALLED.split())
def test_parameters(recorded: Check, path: str) -> None:
    """Names, order and defaults."""
    thing: Any = tfs_proxy
    for name in path.split("."):
        thing = getattr(thing, name)
    recorded("script_api", f"{path}()", parameters(thing))


def test_values_that_scripts_make() -> None:
    """Their fields, and what they refuse."""
    error, reply = tfs_proxy.HTTPError(415, "send a PNG"), tfs_proxy.Response("text", status=201)

    assert (error.status, error.message, str(error)) == (415, "send a PNG", "send a PNG")
    assert (reply.body, reply.content_type, reply.status, reply.headers) == ("text", None, 201, {})
    for status in (200, 600):
        with pytest.raises(ValueError, match="from 400 to 599"):
            tfs_proxy.HTTPError(status, "no error")
    with pytest.raises(ValueError, match="can't set the header"):
        tfs_proxy.Response("text", headers={"Content-Length": "4"})
    with pytest.raises(ValueError, match="exclude each other"):
        tfs_proxy.Request({}, version=1, label="stable")


@pytest.fixture
def halves(stacks: Start) -> Running:
    """A script of two halves in front of half_plus_two."""
    return stacks("script")


def test_what_a_context_has(halves: Running, recorded: Check) -> None:
    """All fields of AWS's tuple, and more; predict, rest_uri, channel and grpc_port lead to the model server."""
    attributes = "user=7,tfs-signature-name=serving_default"
    named = {"X-Amzn-SageMaker-Custom-Attributes": attributes, "X-Own": "mine", "Accept": "text/x-own"}
    answer = halves.invoke(ONE, "text/x-report", **named, **{"X-Amzn-SageMaker-Inference-Id": "id-7"})

    assert answer.status == 499, answer.body
    seen = json.loads(answer.json["error"])
    assert seen["predict"] == [3.0]
    assert seen["uri"] == {"predictions": [2.5]}
    for key in ("predict", "uri"):
        del seen[key]
    recorded("script_api", "a context", seen)
    assert answer.headers["x-request-id"] == "id-7"
    halves.named("WARNING.*a line of the script")


@pytest.mark.parametrize(
    ("kind", "body", "predictions"),
    [
        ("application/json", ONE, [2.5]),
        ("text/x-array", "1.0 2.0", [2.5, 3.0]),
        ("text/x-mapping", "1.0 4.0", [2.5, 4.0]),
        ("text/x-request", "2.0", [3.0]),
    ],
)
def test_what_input_handler_may_return(
    halves: Running, kind: str, body: str, predictions: list[float]
) -> None:
    """JSON, an array, a mapping, and a Request."""
    answer = halves.invoke(body, kind)

    assert (answer.status, answer.json) == (200, {"predictions": predictions})


def test_default_input(halves: Running) -> None:
    """What a model without a script gets."""
    assert halves.invoke("[1.0]", Accept="text/x-default").json == {"predictions": [[2.5]]}


def test_what_output_handler_gets_and_may_return(halves: Running, recorded: Check) -> None:
    """A response with arrays that passes for one of requests; a Response, a pair, and default_output."""
    recorded("script_api", "a response", halves.invoke(Accept="text/x-seen").json)

    reply = halves.invoke(Accept="text/x-response")
    assert (reply.status, reply.body, reply.headers["content-type"]) == (203, b"[2.5]", "text/plain")
    assert reply.headers["x-kind"] == "own"
    assert halves.invoke(Accept="application/x-npy").body[:6] == b"\x93NUMPY"


def test_an_error_of_the_model_server_reaches_output_handler(halves: Running) -> None:
    """What it returns goes out with the model server's status."""
    answer = halves.invoke("nonsense", "text/x-own")

    assert (answer.status, answer.first_words) == (400, "JSON Parse error:")


@pytest.fixture
def archive(tmp_path: Path, saved_models: Path) -> Path:
    """The archive of the script of two halves, for its own tests."""
    return pack(
        tmp_path / "model.tar.gz", {"code/inference.py": HALVES}, {"m": saved_models / "half_plus_two"}
    )


def test_the_testing_module_calls_the_same_script(archive: Path) -> None:
    """Without servers: answers, refusals, and what the model server was asked."""
    with tfs_proxy.testing.load(archive, outputs={"y": [9.5]}) as script:
        reply = script.post("1.0", content_type="text/x-array", accept="text/x-response")
        assert (reply.status, reply.text, reply.content_type) == (203, "[9.5]", "text/plain")
        assert (reply.headers["x-kind"], reply.pieces, reply.broken) == ("own", (b"[9.5]",), False)
        assert script.calls[0].inputs["x"].tolist() == [1.0]
        assert (script.calls[0].target.model, script.calls[0].target.method) == ("m", "predict")
        assert script.post("1.0", content_type="text/x-refuse").json == {"error": "send something else"}
        assert script.openapi().json["openapi"].startswith("3.1")


def test_handler_and_init_in_the_testing_module(tmp_path: Path) -> None:
    """`handler` alone, asynchronous, with init before it."""
    (tmp_path / "code").mkdir()
    (tmp_path / "words.txt").write_text("a word")
    (tmp_path / "code" / "inference.py").write_text(HANDLER)
    with tfs_proxy.testing.load(
        tmp_path / "code" / "inference.py", signatures=HALF, outputs={"y": [1.5]}
    ) as script:
        seen = script.post("{}").json

    assert (seen["init"], seen["outputs"], seen["word"]) == ([1.5], [1.5], "a word")


TYPED = """
from dataclasses import dataclass


@dataclass
class Row:
    x: float


def handler(rows: list[Row], context) -> list[Row]:
    return [Row(y) for y in context.predict([row.x for row in rows])["y"]]
"""


def test_a_typed_handler(tmp_path: Path) -> None:
    """An object for a body, and JSON for what it returns; 400 with places, 415 for what is no JSON."""
    (tmp_path / "inference.py").write_text(TYPED)
    with tfs_proxy.testing.load(
        tmp_path / "inference.py", signatures=HALF, outputs={"y": [1.5, 2.5]}
    ) as script:
        assert script.post([{"x": 1}, {"x": 2}]).json == [{"x": 1.5}, {"x": 2.5}]
        assert script.post('{"x": 1}\n{"x": 2}', "application/jsonlines").status == 200
        refused = script.post([{"x": 1}, {"x": "a"}])
        assert script.post("1", "text/csv").status == 415
    assert refused.status == 400
    assert [each["loc"] for each in refused.json["details"]] == [[1, "x"]]


FUNCTIONS = """
import json
import tfs_proxy


def model_fn(model_dir):
    return model_dir


def input_fn(data, content_type, context):
    return [type(data).__name__, content_type, context.headers.get("X-Own"), bool(context.request_id)]


def predict_fn(data, model):
    return data


def output_fn(prediction, accept):
    return json.dumps([*prediction, accept]), "application/json"
"""


def test_each_function_of_a_script_that_is_the_model(tmp_path: Path) -> None:
    """model_fn, input_fn, predict_fn and output_fn; text for JSON and CSV, else bytes; bare media types."""
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "inference.py").write_text(FUNCTIONS)
    with tfs_proxy.testing.load(tmp_path / "code" / "inference.py") as script:
        text = script.post("1", "text/csv; charset=utf-8", "text/csv;q=1", headers={"X-Own": "mine"}).json
        octets = script.post("1", "application/octet-stream").json

    assert text == ["str", "text/csv", "mine", True, "text/csv"]
    assert octets == ["bytes", "application/octet-stream", None, True, "application/json"]


def test_transform_fn_and_the_functions_that_may_be_missing(tmp_path: Path) -> None:
    """JSON, CSV and npy are read and written without input_fn and output_fn; transform_fn does all of it."""
    (tmp_path / "code").mkdir()
    path = tmp_path / "code" / "inference.py"
    path.write_text(SCRIPT_MODEL)
    with tfs_proxy.testing.load(path) as script:
        assert script.post("1,2\n", "text/csv", "application/json").json == [[2.0, 4.0]]
        reply = script.post("[[1, 2]]", accept="text/csv")
        assert (reply.text, reply.headers["x-amzn-sagemaker-custom-attributes"]) == ("2,4\n", "doubled=yes")
        assert script.post("<a/>", "application/xml").status == 415
        assert script.post("[1]", accept="image/png").status == 406
    path.write_text(
        "def model_fn(d): return 7\ndef transform_fn(m, data, kind, accept): return f'{m} {data}', 'text/plain'\n"
    )
    with tfs_proxy.testing.load(path) as script:
        assert script.post("[1]").text == "7 [1]"
