"""Tensors that numpy has no type or no rank for go over gRPC into the embedded server and back."""

import json
from typing import Any

import numpy as np
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


WHOLE = {
    "qint8": (np.int8, [-128, 0, 127]),
    "quint8": (np.uint8, [0, 5, 255]),
    "qint16": (np.int16, [-32768, 0, 32767]),
    "quint16": (np.uint16, [0, 5, 65535]),
    "qint32": (np.int32, [-(2**31), 0, 2**31 - 1]),
    "int4": (np.int8, [-8, 0, 7]),
    "uint4": (np.uint8, [0, 5, 15]),
}


@pytest.mark.parametrize("kind", WHOLE)
def test_narrow_whole_numbers_come_back(predict: Predict, kind: str) -> None:
    element, values = WHOLE[kind]
    content = np.array(values, element).tobytes()
    for given, wanted in (
        (tensor_of(kind, [3, 1], int_val=values), values),
        (tensor_of(kind, [3, 1], int_val=values[:2]), [*values[:2], values[1]]),
        (tensor_of(kind, [3, 1], tensor_content=content), values),
    ):
        answer = predict(given, kind)
        assert answer == tensor_of(kind, [3, 1], int_val=wanted)
    for alone in (tensor_of(kind, [], int_val=[5]), tensor_of(kind, [0, 2])):
        assert predict(alone, kind) == alone


@pytest.mark.parametrize("kind", ["float8_e5m2", "float8_e4m3fn"])
def test_decimals_of_eight_bits_come_back(predict: Predict, kind: str) -> None:
    bits = bytes([0x00, 0x38, 0x3C, 0xB8])
    for given in (tensor_of(kind, [4], float8_val=bits), tensor_of(kind, [4], tensor_content=bits)):
        assert predict(given, kind) == tensor_of(kind, [4], float8_val=bits)
    short = tensor_of(kind, [3], float8_val=bits[:2])
    assert predict(short, kind) == tensor_of(kind, [3], float8_val=bits[:2] + bits[1:2])


def test_a_narrow_type_is_not_its_plain_one(predict: Predict) -> None:
    given, wanted = refusal(predict, tensor_of("int8", [1], int_val=[1]), "qint8")
    assert (given, wanted) == ("INVALID_ARGUMENT", "Expects arg[0] to be qint8 but int8 is provided")
    _, wanted = refusal(predict, tensor_of("float8_e5m2", [1], float8_val=b"1"), "uint4")
    assert wanted == "Expects arg[0] to be uint4 but float8_e5m2 is provided"


def test_json_has_no_narrow_types(embedded_server: EmbeddedServer) -> None:
    statuses = {}
    for kind in ("float16", *WHOLE, "float8_e5m2"):
        document = {"signature_name": kind, "inputs": [1]}
        statuses[kind] = ask(embedded_server, "/v1/models/echo:predict", document)[0]
    assert set(statuses.values()) == {501}, statuses


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
