"""A model without `serving_default`: its only usable signature is the default one, but not TensorFlow Serving's."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

from support.grpc_calls import predict, refusal
from support.model_fixtures import Exported
from support.stack import Stack, serving
from support.transform_command import transform
from tfs_proxy.model.report.first_request import TRY
from tfs_proxy.wire.protos.open_inference import ModelInferRequest, ModelInferResponse

pytestmark = [pytest.mark.tensorflow, pytest.mark.slow]

EXPORT = """
import sys
import tensorflow as tf

module = tf.Module()
module.steps = tf.Variable(7, dtype=tf.int64)
one = tf.TensorSpec([None], tf.float32, name="x")
half = tf.function(lambda x: {"y": x / 2}, input_signature=[one])
third = tf.function(lambda x: {"y": x / 3}, input_signature=[one])
state = tf.function(lambda size: {"state": tf.zeros([size])}, input_signature=[tf.TensorSpec([], tf.int32, name="size")])
step = tf.function(lambda: {"steps": module.steps.read_value()}, input_signature=[])
policy = {"action": half, "get_initial_state": state, "get_train_step": step}
for name, functions in (("policy", policy), ("pair", {"half": half, "third": third})):
    tf.saved_model.save(module, f"{sys.argv[1]}/{name}/1", {key: each.get_concrete_function() for key, each in functions.items()})
"""
NAME_ONE = (
    'has no signature "serving_default"; its signatures are half, third. Name one: tfs-signature-name=NAME in'
)


@pytest.fixture(scope="module")
def stack(exported: Exported) -> Iterator[Stack]:
    """Both models, the policy as the default one."""
    env = {"SAGEMAKER_TFS_DEFAULT_MODEL_NAME": "policy", "TFS_PROXY_GRPC_PORT": "0"}
    with serving(str(exported(EXPORT)), "--model-server", "embedded", env=env) as running:
        yield running


def ask(
    stack: Stack, path: str, body: str, content_type: str = "application/json", model: str = "policy"
) -> Any:
    """Status, and the body's text or its error."""
    attributes = {"X-Amzn-SageMaker-Custom-Attributes": f"tfs-model-name={model}"}
    answer = stack.ask("POST", path, body, {"Content-Type": content_type, **attributes})
    return answer.status, "".join(answer.body.decode().split())


def infer(stack: Stack, model: str) -> list[float]:
    """ModelInfer of one number, 2."""
    request = ModelInferRequest(model_name=model)
    tensor = request.inputs.add(name="x", datatype="FP32", shape=[1])
    tensor.contents.fp32_contents.append(2.0)
    with grpc.insecure_channel(stack.grpc) as channel:
        method = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
        answer = ModelInferResponse.FromString(method(request.SerializeToString(), timeout=60))
    return list(np.frombuffer(answer.raw_output_contents[0], np.float32))


INFERENCE = json.dumps({"inputs": [{"name": "x", "shape": [1], "datatype": "FP32", "data": [2.0]}]})


def test_the_only_usable_signature_answers(stack: Stack) -> None:
    """At /invocations, whatever the body, and /v2; /v1 and Predict stay as TensorFlow Serving has them."""
    for path, body, content_type in (
        ("/invocations", '{"instances": [2.0]}', "application/json"),
        ("/invocations", '{"inputs": [2.0]}', "application/json"),
        ("/invocations", "[[2.0]]", "application/json"),
        ("/invocations", "2.0", "text/csv"),
        ("/v2/models/policy/infer", INFERENCE, "application/json"),
    ):
        status, text = ask(stack, path, body, content_type)
        assert (status, "1.0" in text) == (200, True), (path, body, text)
    named = ask(stack, "/invocations", '{"signature_name": "get_initial_state", "inputs": 2}')
    assert named == (200, '{"outputs":[0.0,0.0]}')
    assert infer(stack, "policy") == [1.0]
    assert json.loads(stack.ask("GET", "/v2/models/policy").body)["inputs"][0]["name"] == "x"
    status, text = ask(stack, "/v1/models/policy:predict", '{"instances": [2.0]}')
    assert (status, "serving_default" in text) == (400, True)
    with grpc.insecure_channel(stack.grpc) as channel:
        assert "serving_default" in refusal(lambda: predict(channel, [2.0], "policy"))[1]


def test_with_several_the_refusal_says_how_to_name_one(stack: Stack) -> None:
    sentence = "".join(NAME_ONE.split()).replace('"', '\\"')
    for path, body in (("/invocations", '{"instances": [3.0]}'), ("/v2/models/pair/infer", INFERENCE)):
        status, text = ask(stack, path, body, model="pair")
        assert (status, sentence in text) == (400, True), text
    code, text = refusal(lambda: infer(stack, "pair"))
    assert (code, NAME_ONE in text) == ("INVALID_ARGUMENT", True)
    member = ask(stack, "/invocations", '{"signature_name": "third", "instances": [3.0]}', model="pair")
    assert member == (200, '{"predictions":[1.0]}')


def run(*words: str) -> str:
    """Output of a command that succeeds."""
    done = subprocess.run(
        [sys.executable, "-m", "tfs_proxy.cli", *words],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_commands_name_a_signature(stack: Stack, exported: Exported, tmp_path: Path) -> None:
    """And the ready line the default one, which a job needs no name of."""
    rows = tmp_path / "rows.csv"
    rows.write_text("3.0\n6.0\n")
    stack.wait_for_log(f"with the signature action unless a request names another{TRY}curl ")
    url = f"http://127.0.0.1:{stack.port}"
    third = ("--signature", "third")

    asked = run(
        "ask", url, str(rows), *third, "--custom-attributes", "tfs-model-name=pair", "--accept", "text/csv"
    )
    assert asked == "1.0\n2.0\n"
    assert "Answer: 200" in run("check", str(exported(EXPORT) / "pair"), "--request", str(rows), *third)
    for model, words, answers in (("pair", third, "1.0\n2.0\n"), ("policy", (), "1.5\n3.0\n")):
        out = tmp_path / model
        where = ("--model", str(exported(EXPORT) / model), "--model-server", "embedded", "--output", str(out))
        done = transform(str(rows), *where, *words)
        assert done.status == 0, done.log
        assert (out / "rows.csv.out").read_text() == answers
