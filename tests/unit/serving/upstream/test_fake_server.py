"""The fake model server takes what a real one takes: every recorded request of a client that was answered with 200."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from support.plane import answer
from support.signatures import Shape
from tfs_proxy.serving.upstream.fake_server import FakeModelServer, Versions
from tfs_proxy.values.signature import DEFAULT_SIGNATURE, PREDICT_METHOD, Signature, Target, TensorSpec

GOLDEN = Path(__file__).parents[3] / "golden"
ONE_A_RECORD = (None,)


def signature(name: str, outputs: str, **inputs: tuple[str, Shape]) -> Signature:
    """A signature with float outputs, one value a record."""
    specs = {alias: TensorSpec(alias, dtype, shape) for alias, (dtype, shape) in inputs.items()}
    gives = {alias: TensorSpec(alias, "DT_FLOAT", ONE_A_RECORD) for alias in outputs.split()}
    return Signature(name, PREDICT_METHOD, specs, gives)


def versions(*signatures: Signature, numbers: tuple[int, ...] = (1,)) -> Versions:
    by_name = {signature.name: signature for signature in signatures}
    return dict.fromkeys(numbers, by_name)


LINEAR = signature(DEFAULT_SIGNATURE, "y", x=("DT_FLOAT", ONE_A_RECORD))
A = ("DT_FLOAT", (None, 3))
MODELS: Mapping[str, Versions] = {
    "half_plus_two": versions(LINEAR),
    "versions": versions(LINEAR, numbers=(1, 2)),
    "special": versions(LINEAR),
    "multi_io": versions(
        signature(DEFAULT_SIGNATURE, "sum label count", a=A, b=("DT_INT64", ONE_A_RECORD)),
        signature("norm", "norm", a=A),
    ),
    "bytes": versions(
        signature(DEFAULT_SIGNATURE, "length echo_bytes", image_bytes=("DT_STRING", ONE_A_RECORD)),
        signature("text", "upper", text=("DT_STRING", ONE_A_RECORD)),
    ),
    "scalar": versions(signature(DEFAULT_SIGNATURE, "product", x=("DT_FLOAT", ()), y=("DT_FLOAT", ()))),
    "matrix": versions(signature(DEFAULT_SIGNATURE, "det t", m=("DT_FLOAT", (None, 2, 2)))),
    "regress_classify": versions(
        signature("regress_x_to_y", "outputs", inputs=("DT_STRING", None)),
        signature("classify_labels", "scores", inputs=("DT_STRING", None)),
    ),
}
"""Models of the recorded answers, with their signatures."""

INVOCATIONS = [
    pytest.param(row, id=row["name"])
    for row in json.loads((GOLDEN / "invocations.json").read_text())
    if row["method"] == "POST" and row["want"]["status"] == 200
]


@pytest.mark.parametrize("row", INVOCATIONS)
def test_invocations_that_were_answered(row: Mapping[str, Any]) -> None:
    """A client's body of any type is answered as well: ten of these have shapes that no signature declares."""
    headers = row["headers"]
    attributes = headers.get("X-Amzn-SageMaker-Custom-Attributes", "")
    named = dict(pair.split("=") for pair in attributes.split(",") if pair.startswith("tfs-"))
    target = Target(named.get("tfs-model-name", "half_plus_two"), method=named.get("tfs-method", "predict"))

    body, content_type = row["body"].encode(), headers.get("Content-Type")
    reply = answer(FakeModelServer(MODELS), target, body, content_type, "application/json")

    assert reply.status == 200, reply.body


@pytest.mark.parametrize(
    ("model", "body", "error"),
    [
        ("matrix", '{"instances": [[1, 2, 3]]}', 'The input "m" has shape [1, 3], expected [?, 2, 2].'),
        (
            "multi_io",
            '{"inputs": {"a": [[1, 2]], "b": [1]}}',
            'The input "a" has shape [1, 2], expected [?, 3].',
        ),
    ],
)
def test_a_size_that_the_signature_declares(model: str, body: str, error: str) -> None:
    """A shape is refused, in a sentence, if the signature declares a size and it has another."""
    given = FakeModelServer(MODELS).predict(Target(model), body.encode())

    assert (given.status, json.loads(given.body)) == (400, {"error": error})
