"""Tensors that numpy has no type or no rank for go over gRPC into the embedded server and back."""

import json
from typing import Any

import pytest

from support.embedded_client import ask, call
from support.grpc_calls import refusal as refusal_of
from support.model_fixtures import EmbeddedServer
from tfs_proxy.wire import protos

pytestmark = pytest.mark.tensorflow

Predict = Any


@pytest.fixture(scope="module")
def predict(embedded_server: EmbeddedServer) -> Predict:
    """Asks a signature of `echo` with one tensor, and returns what comes back."""

    def of(tensor: protos.TensorProto, signature: str) -> protos.TensorProto:
        request = protos.PredictRequest()
        request.model_spec.name, request.model_spec.signature_name = "echo", signature
        request.inputs["x"].CopyFrom(tensor)
        answer = call(embedded_server, "Predict", request.SerializeToString())
        return protos.PredictResponse.FromString(answer).outputs["y"]

    return of


def tensor_of(kind: str, sizes: list[int], **values: Any) -> protos.TensorProto:
    tensor = protos.TensorProto(dtype=f"DT_{kind.upper()}", **values)
    tensor.tensor_shape.SetInParent()
    for size in sizes:
        tensor.tensor_shape.dim.add(size=size)
    return tensor


def refusal(predict: Predict, tensor: protos.TensorProto, signature: str) -> tuple[str, str]:
    return refusal_of(lambda: predict(tensor, signature))


def test_quantized_numbers_are_refused(embedded_server: EmbeddedServer, predict: Predict) -> None:
    """Numpy has no type for them, so they go neither in nor out."""
    code, said = refusal(predict, tensor_of("qint8", [1], int_val=[1]), "qint8")
    assert (code, said) == ("INVALID_ARGUMENT", "tensor parsing error: x")
    document = {"signature_name": "qint8", "inputs": [1]}
    assert ask(embedded_server, "/v1/models/echo:predict", document)[0] == 501


@pytest.mark.parametrize("rank", [65, 240, 255])
def test_tensors_of_too_many_dimensions_are_refused(predict: Predict, rank: int) -> None:
    code, text = refusal(predict, tensor_of("float", [1] * rank, float_val=[1.0]), "float32")
    assert code == "INVALID_ARGUMENT"
    assert text.startswith(
        f'The tensor "x" has {rank} dimensions; the embedded model server takes and gives at most 64'
    )


def test_lists_without_a_value_have_a_limit(embedded_server: EmbeddedServer) -> None:
    """Eighty bytes ask for gigabytes of them."""
    document = {"signature_name": "float32", "inputs": {"x": [[]], "shape": [2**31 - 1, 0]}}
    status, body, _ = ask(embedded_server, "/v1/models/reshaping:predict", document)
    assert (status, b"too many lists without a value" in body) == (400, True)


def test_a_tensor_of_64_dimensions_comes_back(predict: Predict) -> None:
    tensor = tensor_of("float", [1] * 64, float_val=[1.5])
    assert predict(tensor, "float32") == tensor


@pytest.mark.parametrize("rank", [32, 33, 64])
def test_strings_have_at_most_32_dimensions(
    embedded_server: EmbeddedServer, predict: Predict, rank: int
) -> None:
    """In and out, over both APIs, however few a model declares: more would end the process."""
    given = tensor_of("string", [1] * rank, string_val=[b"a"])
    nested = json.loads("[" * rank + '"a"' + "]" * rank)
    documents = {
        "echo": {"signature_name": "string", "instances": nested},
        "reshaping": {"signature_name": "string", "inputs": {"x": ["a"], "shape": [1] * rank}},
    }
    answers = [ask(embedded_server, f"/v1/models/{name}:predict", each) for name, each in documents.items()]
    if rank == 32:
        assert predict(given, "string") == given
        assert [list(json.loads(body).values()) for _, body, _ in answers] == [[nested], [nested]]
        return
    said = f"{rank} dimensions; the embedded model server takes and gives at most 32 of strings"
    assert [status for status, _, _ in answers] == [400, 400]
    assert all(said in body.decode() for _, body, _ in answers)
    assert said in refusal(predict, given, "string")[1]
