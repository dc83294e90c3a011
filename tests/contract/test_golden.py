"""The answers of tests/golden, digit by digit, at the published doors: /invocations, /v1 and gRPC."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from google.protobuf import json_format

from contract.conftest import Start
from contract.doors import JSON, SECONDS, Running, first_words

pytestmark = pytest.mark.tensorflow

FOLDER = Path(__file__).parents[1] / "golden"
GOLDEN = {path.stem: json.loads(path.read_text()) for path in FOLDER.glob("*.json")}
INVOCATIONS = [case for case in GOLDEN["invocations"] if case["path"] != "/"]
REST = [
    case for case in GOLDEN["rest"] if case["path"].startswith("/v1/") and case["method"] in {"GET", "POST"}
]
WHICH_FIRST = {"err_wrong_shape"}
"""Two operations of its model fail, and which of them first is a race in TensorFlow."""


def same(one: Any, other: Any) -> bool:
    """Whether two JSON values are equal, numbers to the last digit."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def digits(text: str) -> list[str]:
    """The numbers of JSON as they are written, in order of keys."""
    parsed = json.loads(text, parse_float=str, parse_int=str, parse_constant=str, strict=False)
    return re.findall(r"[^\s,\[\]{}]+", json.dumps(parsed, sort_keys=True))


@pytest.mark.parametrize("case", INVOCATIONS, ids=[case["name"] for case in INVOCATIONS])
def test_invocations(front: Running, case: dict[str, Any]) -> None:
    """What AWS's container answered, but for the rows that say why ours differs."""
    answer, want = front.ask(case["method"], case["path"], case["body"], case["headers"]), case["want"]

    assert answer.status == want["status"], answer.body
    assert answer.headers.get("content-type", "").startswith(want.get("content_type", ""))
    if "json" in want:
        assert same(answer.json, want["json"])
    elif answer.status >= 400 and case["path"] != "/ping":
        assert answer.first_words
    if "text" in want:
        assert answer.body.decode().replace("\r\n", "\n") == want["text"]


@pytest.mark.parametrize("case", REST, ids=[case["name"] for case in REST])
def test_rest(front: Running, case: dict[str, Any]) -> None:
    """What TensorFlow Serving answered; of an error status and first words."""
    headers = {**(JSON if case["body"] is not None else {}), **case["headers"]}
    answer, want = front.ask(case["method"], case["path"], case["body"], headers), case["answer"]

    assert answer.status == want["status"], answer.body
    if answer.status == 200 and want["content_type"].startswith("application/json"):
        got = without_readiness(answer.json)
        assert same(got, json.loads(want["body"]))
        assert case["method"] != "POST" or digits(answer.body.decode()) == digits(want["body"])
    elif case["name"] not in WHICH_FIRST and answer.status != 200:
        assert answer.first_words == first_words(json.loads(want["body"], strict=False)["error"])


def without_readiness(document: Any) -> Any:
    """A status without `ready`, which http.md adds for KServe's clients."""
    return {name: value for name, value in document.items() if name != "ready"}


@pytest.fixture
def channel(stacks: Start) -> Iterator[grpc.Channel]:
    """A client of the published gRPC port, which has this API behind nginx."""
    with grpc.insecure_channel(stacks("nginx").grpc) as opened:
        yield opened


@pytest.mark.parametrize("case", GOLDEN["grpc"], ids=[case["name"] for case in GOLDEN["grpc"]])
def test_grpc(channel: grpc.Channel, case: dict[str, Any]) -> None:
    """What TensorFlow Serving answered to its own messages; of an error code and first words."""
    want = case["answer"]
    if want["code"] == "OK":
        assert same(ask_grpc(channel, case), want["reply"])
        return
    with pytest.raises(grpc.RpcError) as caught:
        ask_grpc(channel, case)
    assert caught.value.code().name == want["code"]
    assert first_words(caught.value.details()) == first_words(want["details"])


def ask_grpc(channel: grpc.Channel, case: dict[str, Any]) -> Any:
    """One call through TensorFlow Serving's own messages, summed up as the recorder did."""
    from tensorflow_serving.apis import model_service_pb2_grpc, prediction_service_pb2_grpc

    rpc = case["rpc"]
    service = prediction_service_pb2_grpc.PredictionServiceStub(channel)
    if rpc == "GetModelStatus":
        service = model_service_pb2_grpc.ModelServiceStub(channel)
    reply = getattr(service, rpc)(request_of(rpc, case), SECONDS)
    if rpc == "Predict":
        return {
            "spec": as_dict(reply.model_spec),
            "outputs": {name: summed_up(each) for name, each in reply.outputs.items()},
        }
    if rpc == "GetModelMetadata":
        from tensorflow_serving.apis.get_model_metadata_pb2 import SignatureDefMap

        signatures = SignatureDefMap()
        reply.metadata["signature_def"].Unpack(signatures)
        return {"spec": as_dict(reply.model_spec), "signatures": as_dict(signatures)}
    return as_dict(reply)


def request_of(rpc: str, case: dict[str, Any]) -> Any:
    """The message of a case."""
    import tensorflow as tf
    from tensorflow.core.framework import types_pb2
    from tensorflow_serving.apis import (
        classification_pb2,
        get_model_metadata_pb2,
        get_model_status_pb2,
        inference_pb2,
        predict_pb2,
        regression_pb2,
    )

    kinds = {
        "Predict": predict_pb2.PredictRequest,
        "GetModelStatus": get_model_status_pb2.GetModelStatusRequest,
        "GetModelMetadata": get_model_metadata_pb2.GetModelMetadataRequest,
        "MultiInference": inference_pb2.MultiInferenceRequest,
        "Classify": classification_pb2.ClassificationRequest,
        "Regress": regression_pb2.RegressionRequest,
    }
    request = kinds[rpc]()
    if rpc != "MultiInference":
        spec = request.model_spec
        spec.name, spec.signature_name, spec.version_label = (
            case.get(key, "") for key in ("model", "signature", "label")
        )
        if "label" not in case:
            spec.ClearField("version_label")
        if "version" in case:
            spec.version.value = case["version"]
    for name, (dtype, shape, values) in case.get("inputs", {}).items():
        plain = [value.encode() for value in values] if dtype == "DT_STRING" else values
        kind = tf.as_dtype(types_pb2.DataType.Value(dtype))
        request.inputs[name].CopyFrom(tf.make_tensor_proto(plain, dtype=kind, shape=shape))
    if rpc == "Predict":
        request.output_filter.extend(case.get("output_filter", []))
    if rpc == "GetModelMetadata":
        request.metadata_field.extend(case["fields"])
    if "examples" in case:
        request.input.example_list.SetInParent()
    for features in case.get("examples", []):
        example = request.input.example_list.examples.add()
        for name, value in features.items():
            example.features.feature[name].float_list.value.append(value)
    for method, signature in case.get("tasks", []):
        task = request.tasks.add(method_name=method)
        task.model_spec.name, task.model_spec.signature_name = case["model"], signature
    return request


def summed_up(tensor: Any) -> dict[str, Any]:
    """Type, shape and values."""
    import tensorflow as tf

    values = np.ravel(tf.make_ndarray(tensor)).tolist()
    plain = [value.decode("latin-1") if isinstance(value, bytes) else value for value in values]
    return {
        "dtype": int(tensor.dtype),
        "shape": [each.size for each in tensor.tensor_shape.dim],
        "values": plain,
    }


def as_dict(message: Any) -> Any:
    """A message as the recorder wrote it."""
    return json_format.MessageToDict(message, preserving_proto_field_name=True)
