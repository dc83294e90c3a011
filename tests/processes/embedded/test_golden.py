"""The embedded server against answers recorded from TensorFlow Serving 2.20 (tests/golden)."""

import json
import math
import re
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from google.protobuf import json_format

from support.model_fixtures import EmbeddedServer
from tfs_proxy import protos
from tfs_proxy.protos.tensors import numpy_type, to_array, to_bytes
from tfs_proxy.wire.data_types import DataType

pytestmark = pytest.mark.tensorflow

GOLDEN = Path(__file__).resolve().parents[2] / "golden"
REST: list[dict[str, Any]] = json.loads((GOLDEN / "rest.json").read_text())
GRPC: list[dict[str, Any]] = json.loads((GOLDEN / "grpc.json").read_text())

OWN_REST = re.compile(r"JSON Parse error: |Failed to process element: |Conversion of JSON Value")
"""The beginnings of sentences that go on in this package's words."""

TEXT_MAY_DIFFER = {"err_wrong_shape"}
"""Two operations of the model fail, and which of them first is a race in TensorFlow."""


def same(one: Any, other: Any) -> bool:
    """Whether two JSON values are equal, numbers to the last digit."""
    if isinstance(one, bool) or isinstance(other, bool) or one is None or other is None:
        return one is other
    if isinstance(one, int | float) and isinstance(other, int | float):
        if math.isnan(one) or math.isnan(other):
            return math.isnan(one) and math.isnan(other)
        return one == other
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


def folded(text: str) -> str:
    """A text without its white space."""
    return re.sub(r"\s+", "", text)


@pytest.mark.parametrize("case", REST, ids=[case["name"] for case in REST])
def test_rest_answers_as_recorded(embedded_server: EmbeddedServer, case: dict[str, Any]) -> None:
    """Status, JSON and error text are those that TF Serving gave; how JSON is refused only begins so."""
    body = None if case["body"] is None else case["body"].encode()
    headers = {"Content-Type": "application/json", **case["headers"]} if body is not None else case["headers"]
    request = urllib.request.Request(
        embedded_server.rest + case["path"], data=body, headers=headers, method=case["method"]
    )
    try:
        with urllib.request.urlopen(request, timeout=60) as reply:
            status, text = reply.status, reply.read().decode()
    except urllib.error.HTTPError as error:
        status, text = error.code, error.read().decode()
    want = case["answer"]
    assert status == want["status"]
    if not want["content_type"].startswith("application/json"):
        return
    got, recorded = json.loads(text), json.loads(want["body"], strict=False)
    if status == 200:
        assert same(got, recorded), f"{text} instead of {want['body']}"
    elif case["name"] not in TEXT_MAY_DIFFER:
        begins = OWN_REST.match(recorded["error"])
        shown = begins[0] if begins else recorded["error"]
        assert folded(got["error"][: len(shown)] if begins else got["error"]) == folded(shown)


@pytest.fixture(scope="module")
def channel(embedded_server: EmbeddedServer) -> Iterator[grpc.Channel]:
    """A gRPC channel to the server."""
    with grpc.insecure_channel(embedded_server.grpc) as opened:
        yield opened


def fill_spec(spec: protos.ModelSpec, case: dict[str, Any]) -> None:
    """The model, version and signature that a case names."""
    spec.name = case.get("model", "")
    spec.signature_name = case.get("signature", "")
    if "version" in case:
        spec.version.value = case["version"]
    spec.SetInParent()


def fill_examples(into: protos.Input, case: dict[str, Any]) -> None:
    """The examples of a case, all of them floats."""
    into.example_list.SetInParent()
    for features in case["examples"]:
        example = into.example_list.examples.add()
        for name, value in features.items():
            example.features.feature[name].float_list.value.append(value)


def as_dict(message: Any) -> Any:
    """A message as the recorder wrote it."""
    return json_format.MessageToDict(message, preserving_proto_field_name=True, descriptor_pool=protos.POOL)


def call(channel: grpc.Channel, service: str, method: str, request: Any, reply: Any) -> Any:
    """One call, from message to message."""
    run = channel.unary_unary(
        f"/tensorflow.serving.{service}/{method}",
        request_serializer=lambda message: message.SerializeToString(),
        response_deserializer=reply.FromString,
    )
    return run(request, timeout=60)


def predict(channel: grpc.Channel, case: dict[str, Any]) -> Any:
    """Predict, as the recorder summed it up."""
    request = protos.PredictRequest(output_filter=case.get("output_filter", []))
    fill_spec(request.model_spec, case)
    for name, (dtype, shape, values) in case["inputs"].items():
        number = DataType[dtype]
        plain = [value.encode() for value in values] if dtype == "DT_STRING" else values
        request.inputs[name].MergeFromString(to_bytes(np.array(plain, numpy_type(number)).reshape(shape)))
    reply = call(channel, "PredictionService", "Predict", request, protos.PredictResponse)
    outputs = {}
    for name, tensor in reply.outputs.items():
        array = to_array(tensor)
        values = [
            value.decode("latin-1") if isinstance(value, bytes) else value for value in array.ravel().tolist()
        ]
        outputs[name] = {"dtype": int(tensor.dtype), "shape": list(array.shape), "values": values}
    return {"spec": as_dict(reply.model_spec), "outputs": outputs}


def status(channel: grpc.Channel, case: dict[str, Any]) -> Any:
    """GetModelStatus."""
    request = protos.GetModelStatusRequest()
    fill_spec(request.model_spec, case)
    return as_dict(call(channel, "ModelService", "GetModelStatus", request, protos.GetModelStatusResponse))


def metadata(channel: grpc.Channel, case: dict[str, Any]) -> Any:
    """GetModelMetadata."""
    request = protos.GetModelMetadataRequest(metadata_field=case["fields"])
    fill_spec(request.model_spec, case)
    reply = call(channel, "PredictionService", "GetModelMetadata", request, protos.GetModelMetadataResponse)
    signatures = protos.SignatureDefMap()
    reply.metadata["signature_def"].Unpack(signatures)
    return {"spec": as_dict(reply.model_spec), "signatures": as_dict(signatures)}


def classify(channel: grpc.Channel, case: dict[str, Any]) -> Any:
    """Classify."""
    request = protos.ClassificationRequest()
    fill_spec(request.model_spec, case)
    fill_examples(request.input, case)
    return as_dict(call(channel, "PredictionService", "Classify", request, protos.ClassificationResponse))


def regress(channel: grpc.Channel, case: dict[str, Any]) -> Any:
    """Regress."""
    request = protos.RegressionRequest()
    fill_spec(request.model_spec, case)
    fill_examples(request.input, case)
    return as_dict(call(channel, "PredictionService", "Regress", request, protos.RegressionResponse))


def multi_inference(channel: grpc.Channel, case: dict[str, Any]) -> Any:
    """MultiInference."""
    request = protos.MultiInferenceRequest()
    fill_examples(request.input, case)
    for method, signature in case["tasks"]:
        task = request.tasks.add(method_name=method)
        task.model_spec.name, task.model_spec.signature_name = case["model"], signature
    return as_dict(
        call(channel, "PredictionService", "MultiInference", request, protos.MultiInferenceResponse)
    )


CALLS: dict[str, Callable[[grpc.Channel, dict[str, Any]], Any]] = {
    "Predict": predict,
    "GetModelStatus": status,
    "GetModelMetadata": metadata,
    "Classify": classify,
    "Regress": regress,
    "MultiInference": multi_inference,
}


@pytest.mark.parametrize("case", GRPC, ids=[case["name"] for case in GRPC])
def test_grpc_answers_as_recorded(channel: grpc.Channel, case: dict[str, Any]) -> None:
    """Code, reply and error text are those that TF Serving gave."""
    want = case["answer"]
    if want["code"] == "OK":
        assert same(CALLS[case["rpc"]](channel, case), want["reply"])
        return
    with pytest.raises(grpc.RpcError) as caught:
        CALLS[case["rpc"]](channel, case)
    assert caught.value.code().name == want["code"]
    assert folded(caught.value.details()) == folded(want["details"])


@pytest.mark.parametrize("text", ["YQ=", "===="])
def test_base64_with_wrong_padding_is_refused(embedded_server: EmbeddedServer, text: str) -> None:
    """As TF Serving has it: the padding is whole or left out."""
    body = json.dumps({"instances": [{"b64": text}]}).encode()
    request = urllib.request.Request(f"{embedded_server.rest}/v1/models/bytes:predict", body)
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(request, timeout=60)
    assert caught.value.code == 400
    assert "is not base64" in json.loads(caught.value.read())["error"]
