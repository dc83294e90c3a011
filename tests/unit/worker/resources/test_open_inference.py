"""The Open Inference Protocol over REST, in front of a model, of a script, and at /invocations."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import falcon.testing
import numpy as np
import pytest

from support.deployments import deployment
from tfs_proxy.serving.script.script_model import load_script_model
from tfs_proxy.values.deployment import Doors
from tfs_proxy.values.signature import PREDICT_METHOD, Signature, Target, TensorSpec
from tfs_proxy.wire.header_names import INFERENCE_HEADER_LENGTH
from tfs_proxy.worker.app import create_app
from unit.worker.resources.conftest import Front, MakeFront, Says

INFER = "/v2/models/half/infer"
TENSOR = {"name": "x", "shape": [2], "datatype": "FP32", "data": [1, 3]}
ANSWERED = b'{"predictions": [2.5, 3.5]}'
OUTPUT = {"name": "y", "datatype": "FP32", "shape": [2], "data": [2.5, 3.5]}
SPEC = TensorSpec("y", "DT_FLOAT", (None,))
SIGNATURE = Signature("serving_default", PREDICT_METHOD, {}, {"y": SPEC})
TRITON = "application/vnd.sagemaker-triton.binary+json"


def request(**changes: Any) -> bytes:
    """A request of one tensor, with changes."""
    return json.dumps({"inputs": [TENSOR], **changes}).encode()


def binary_request(values: Sequence[float] = (1, 3)) -> tuple[bytes, int]:
    """A tensor of two values as binary data, like the wanted answer, and the size of the JSON."""
    tensor: dict[str, Any] = {key: value for key, value in TENSOR.items() if key != "data"}
    tensor["parameters"] = {"binary_data_size": 8}
    text = json.dumps({"inputs": [tensor], "parameters": {"binary_data_output": True}}).encode()
    return text + np.array(values, "<f4").tobytes(), len(text)


@pytest.mark.parametrize(
    ("loaded", "path", "status"),
    [
        ([Target("half")], "", 200),
        ([Target("half"), Target("half", 2)], "/versions/2", 200),
        ([], "/versions/1", 503),
        ([], "/versions/stable", 503),
        ([Target("half")], "/versions/1", 503),
        ([Target("half")], "/versions/stable", 404),
    ],
)
def test_the_model_server_says_what_is_ready(
    make_front: MakeFront, loaded: list[Target], path: str, status: int
) -> None:
    result = make_front(serves=lambda target: target in loaded).client.simulate_get(
        f"/v2/models/half{path}/ready"
    )

    assert result.status_code == status
    if status == 503:
        assert result.json == {"name": "half", "ready": False, "error": "model half is not ready"}


def test_an_answer_has_the_name_that_was_asked_for(make_front: MakeFront) -> None:
    """The model server has another name for the model."""
    front = make_front(nickname="nick", body=ANSWERED)

    answered = [front.post(request(), f"/v2/models/{name}/infer").json for name in ("nick", "half")]

    assert [answer["model_name"] for answer in answered] == ["nick", "half"]
    assert front.client.simulate_get("/v2/models/nick").json["name"] == "nick"


@pytest.mark.parametrize("size", ["x", "-1", "1.0", "9" * 30, ""])
def test_an_odd_header_is_refused(front: Front, size: str) -> None:
    assert INFERENCE_HEADER_LENGTH in front.refusal(400, request(), INFER, **{INFERENCE_HEADER_LENGTH: size})


HANDLER = """
def handler(data, context):
    arrays = context.default_input(data)
    return {returned}
"""


@pytest.mark.parametrize(
    "returned", ['{"y": arrays["x"] + 0.5}', 'context.default_output({"y": arrays["x"] + 0.5})']
)
def test_a_script_answers_with_arrays(make_front: MakeFront, returned: str) -> None:
    front = make_front(HANDLER.replace("{returned}", returned), open_inference="script")
    body, size = binary_request()

    plain = front.post(request(id="7"), INFER)
    binary = front.post(body, INFER, **{INFERENCE_HEADER_LENGTH: str(size)})

    expected = {**OUTPUT, "data": [1.5, 3.5]}
    assert plain.json == {"model_name": "half", "model_version": "1", "id": "7", "outputs": [expected]}
    answered_size = int(binary.headers[INFERENCE_HEADER_LENGTH.lower()])
    assert np.frombuffer(binary.content[answered_size:], "<f4").tolist() == [1.5, 3.5]
    assert front.upstream.calls == []


@pytest.mark.parametrize(
    ("script", "data"),
    [
        (
            "def handler(data, context):\n    return context.predict(context.default_input(data))\n",
            [2.5, 3.5],
        ),
        ("def input_handler(data, context):\n    return context.default_input(data)\n", [2.5, 3.5]),
        (
            "def output_handler(response, context):\n    return {k: v + 1 for k, v in response.outputs.items()}\n",
            [3.5, 4.5],
        ),
    ],
)
def test_a_script_sees_the_signature_that_is_asked_for(
    make_front: MakeFront, script: str, data: list[float]
) -> None:
    """Half a script is completed."""
    front = make_front(script, open_inference="script", body=ANSWERED)
    body = json.dumps({"inputs": [{**TENSOR, "name": "z"}], "parameters": {"signature": "other"}}).encode()

    assert front.post(body, INFER).json["outputs"] == [{**OUTPUT, "data": data}]
    assert [call.target.signature for call in front.upstream.calls] == ["other"]


@pytest.mark.parametrize("returned", ['{"y": [None]}', '{"y": [[1], [2, 3]]}'])
def test_what_is_no_tensor_is_the_scripts_failure(make_front: MakeFront, returned: str) -> None:
    """The error names the output."""
    front = make_front(HANDLER.replace("{returned}", returned), open_inference="script")

    assert 'output "y"' in front.refusal(500, request(), INFER)


MODEL_FN = """
class Model:
    def predict(self, data):
        return data * 2

def model_fn(model_dir):
    return Model()
"""
IN_AND_OUT = """
def model_fn(model_dir):
    return 10

def input_fn(data, content_type, context):
    return context.default_input(data)["x"]

def predict_fn(data, model):
    return data + model

def output_fn(prediction, accept, context):
    return {returned}
"""


def script_model(tmp_path: Path, script: str) -> Front:
    """An app whose script is the model."""
    path = tmp_path / "inference.py"
    path.write_text(script)
    served = deployment(
        "scripted",
        models={},
        instances=(),
        script=str(path),
        script_model=str(tmp_path),
        doors=Doors(open_inference="script"),
    )
    app = create_app(served, None, load_script_model(str(path)))
    return Front(falcon.testing.TestClient(app), None, Says())


def test_a_script_model_answers(tmp_path: Path) -> None:
    front = script_model(tmp_path, MODEL_FN)
    client = front.client

    result = front.post(request(), "/v2/models/scripted/versions/1/infer")

    assert result.json["outputs"] == [{**OUTPUT, "name": "output_0", "data": [2.0, 6.0]}]
    assert result.json["model_version"] == "1"
    assert client.simulate_get("/v2/models/scripted").json["platform"] == "python"
    assert client.simulate_get("/v2/models/scripted/ready").json["ready"] is True
    assert client.simulate_get("/v2/models/scripted/versions/2/ready").status_code == 404
    at_invocations = front.post(request(), Content_Type=TRITON)
    assert at_invocations.json["outputs"] == result.json["outputs"]
    for path in ("scripted/versions/2", "other"):
        assert front.post(request(), f"/v2/models/{path}/infer").status_code == 404


@pytest.mark.parametrize("returned", ['{"y": prediction}', 'context.default_output({"y": prediction})'])
def test_the_functions_of_a_script_model_see_arrays(tmp_path: Path, returned: str) -> None:
    front = script_model(tmp_path, IN_AND_OUT.replace("{returned}", returned))

    result = front.post(request(id="x"), "/v2/models/scripted/infer")

    assert result.json["outputs"] == [{**OUTPUT, "data": [11.0, 13.0]}]
    assert result.json["id"] == "x"


@pytest.mark.parametrize("content_type", ["", "application/json", "text/plain", "application/octet-stream"])
def test_raw_tensors_reach_input_fn_as_bytes(tmp_path: Path, content_type: str) -> None:
    returned = '{"y": prediction}'
    front = script_model(tmp_path, IN_AND_OUT.replace("{returned}", returned))
    body, size = binary_request([-1.5, 200])

    headers = {INFERENCE_HEADER_LENGTH: str(size), **({"Content-Type": content_type} if content_type else {})}
    result = front.post(body, "/v2/models/scripted/infer", **headers)

    answered_size = int(result.headers[INFERENCE_HEADER_LENGTH.lower()])
    assert np.frombuffer(result.content[answered_size:], "<f4").tolist() == [8.5, 210.0]


def test_a_body_of_the_protocol_as_plain_json(make_front: MakeFront) -> None:
    """Triton's clients for SageMaker send it so; a script sees the raw body, and a closed /v2 ends it."""
    front = make_front(body=ANSWERED)
    result = front.post(request(), Content_Type="application/json")
    assert (result.status_code, result.json["outputs"]) == (200, [OUTPUT])
    assert (front.upstream.calls[0].json, result.headers["content-type"]) == (
        {"instances": [1.0, 3.0]},
        "application/json",
    )

    front = make_front(body=ANSWERED, open_inference="off")
    front.post(request(), Content_Type="application/json")
    assert front.upstream.calls[0].body == request()

    front = make_front("def input_handler(data, context):\n    return data.read()\n", body=ANSWERED)
    front.post(request(), Content_Type="application/json")
    assert front.upstream.calls[0].body == request()


def test_a_signature_by_its_parameter(front: Front) -> None:
    """One that the model does not have is named."""
    assert '"missing"' in front.refusal(400, request(parameters={"signature": "missing"}), INFER)


def test_a_scripts_own_body_goes_out_as_it_is(make_front: MakeFront) -> None:
    script = "def handler(data, context):\n    return data.read()[:5], context.request_content_type\n"
    front = make_front(script, open_inference="script")

    result = front.post(request(), INFER, Content_Type="application/json")

    assert result.content == request()[:5]
    assert INFERENCE_HEADER_LENGTH.lower() not in result.headers
