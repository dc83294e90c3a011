"""Every format through the whole stack: nginx where there is one, workers, and real models."""

import gzip
import io
import json
from typing import Any

import numpy as np
import pytest

from support.shared_stacks import PAYLOAD_MB
from support.stack import Stack
from tfs_proxy.data.formats.npy import write_npy

pytestmark = pytest.mark.tensorflow

ATTRIBUTES = "X-Amzn-SageMaker-Custom-Attributes"


def _invoke(
    served: Stack, body: bytes, content_type: str, target: str, accept: str = "application/json"
) -> Any:
    headers = {"Content-Type": content_type, "Accept": accept, ATTRIBUTES: target}
    answer = served.ask("POST", "/invocations", body, headers)
    assert answer.status == 200, answer.body
    if accept == "application/json":
        return answer.json
    assert answer.headers["content-type"] == accept
    return answer.body


def test_packed(served: Stack) -> None:
    """gzip bodies are unpacked on every way, up to the limit."""
    for body, content_type in (
        (b"1\n2\n", "text/csv"),
        (b'{"instances": [1.0, 2.0]}', "application/json"),
        (write_npy(np.array([1.0, 2.0])), "application/x-npy"),
    ):
        answer = served.invoke(gzip.compress(body), content_type, Content_Encoding="gzip")
        assert (answer.status, answer.json) == (200, {"predictions": [2.5, 3.0]})
    bomb = gzip.compress(b"1\n" * (PAYLOAD_MB << 19) + b"1")
    assert served.invoke(bomb, "text/csv", Content_Encoding="gzip").status == 413
    assert served.invoke(b"x", "text/csv", Content_Encoding="br").status == 415


@pytest.mark.parametrize("name", ["float16", "bfloat16", "uint16"])
def test_types_that_the_serving_json_lacks(served: Stack, name: str) -> None:
    """TensorFlow Serving's JSON answers 501; rows and columns go as tensors, each answered in its form."""
    target = f"tfs-model-name=echo,tfs-signature-name={name}"
    for key, answered in (("instances", "predictions"), ("inputs", "outputs")):
        body = json.dumps({key: [1, 2]}).encode()
        assert _invoke(served, body, "application/json", target) == {answered: [1, 2]}


@pytest.mark.parametrize("key", ["instances", "inputs"])
def test_a_number_out_of_the_range_of_such_a_type(served: Stack, key: str) -> None:
    """The refusal names it, which the model server's does not."""
    headers = {ATTRIBUTES: "tfs-model-name=echo,tfs-signature-name=uint16"}
    answer = served.ask("POST", "/invocations", json.dumps({key: [1, 70000]}).encode(), headers)
    assert (answer.status, "70000 is out of the range of DT_UINT16" in answer.json["error"]) == (400, True)


@pytest.mark.parametrize("key", ["instances", "inputs"])
def test_a_type_that_json_can_not_carry(served: Stack, key: str) -> None:
    """Complex numbers are the client's mistake in a request, and a 406 that names a type in an answer."""
    headers = {ATTRIBUTES: "tfs-model-name=echo,tfs-signature-name=complex64"}
    body = json.dumps({key: [1, 2]}).encode()
    assert served.ask("POST", "/invocations", body, headers).status == 400
    answer = served.ask(
        "POST", "/invocations", write_npy(np.array([1j])), {**headers, "Content-Type": "application/x-npy"}
    )
    assert (answer.status, "ask for application/x-npy" in answer.json["error"]) == (406, True)


@pytest.mark.parametrize("body", ['{"x": 3.0}', '{"instances": [3.0]}', '{"inputs": [3.0]}'])
def test_outputs_that_are_not_one_per_record(served: Stack, body: str) -> None:
    """JSON has the column form for them, and npz has them; CSV, which needs records, is a 406."""
    target, sent = "tfs-model-name=mixed_batch", body.encode()
    whole = {"outputs": {"per_row": [6.0], "total": 3.0}}
    assert _invoke(served, sent, "application/json", target) == whole
    if "inputs" not in body:
        with np.load(
            io.BytesIO(_invoke(served, sent, "application/json", target, "application/x-npz"))
        ) as arrays:
            assert arrays["total"] == 3.0
    headers = {"Content-Type": "application/json", "Accept": "text/csv", ATTRIBUTES: target}
    assert served.ask("POST", "/invocations", sent, headers).status == 406


@pytest.mark.parametrize("accept", ["application/json", "application/jsonlines", "application/jsons"])
def test_outputs_that_are_not_one_per_record_of_several_documents(served: Stack, accept: str) -> None:
    """No JSON can answer each document by itself, so none is recommended."""
    headers = {
        "Content-Type": "application/jsonlines",
        "Accept": accept,
        ATTRIBUTES: "tfs-model-name=mixed_batch",
    }
    answer = served.ask("POST", "/invocations", b'{"instances": [3.0]}\n{"instances": [3.0]}', headers)
    assert (answer.status, "send each in a request of its own" in answer.json["error"]) == (406, True)
