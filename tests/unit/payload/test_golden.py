"""The recorded requests of tests/golden/invocations.json, as far as they go without HTTP.

The models they were recorded on are rebuilt in numpy here, behind a fake upstream.
"""

import base64
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from support.fake_upstream import Call, FakeUpstream
from support.plane import answer
from tfs_proxy.dataplane.plane import EncodedAnswer
from tfs_proxy.errors import BadInput, NotAcceptable, NotJson, RequestError, UnsupportedMediaType
from tfs_proxy.signature import DEFAULT_SIGNATURE, PREDICT_METHOD, Signature, Target, TensorSpec
from tfs_proxy.upstream.interface import ModelAnswer

GOLDEN = json.loads((Path(__file__).parents[2] / "golden" / "invocations.json").read_text())
OF_THE_EDGE = {
    "model_version_bad",
    "model_traversal",
    "method_unknown",
    "get_invocations",
    "ping",
    "unknown_path",
}
"""Rows that the web room answers before a body is looked at."""

STATUS: Mapping[type[RequestError], int] = {
    BadInput: 400,
    NotJson: 400,
    UnsupportedMediaType: 415,
    NotAcceptable: 406,
}


class Refused(Exception):
    """What a model server says with 400."""


def _spec(name: str, dtype: str) -> TensorSpec:
    return TensorSpec(name, dtype, (None,))


def _signature(inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]) -> Signature:
    return Signature(
        DEFAULT_SIGNATURE,
        PREDICT_METHOD,
        {spec.name: spec for spec in inputs},
        {spec.name: spec for spec in outputs},
    )


LINEAR = _signature([_spec("x", "DT_FLOAT")], [_spec("y", "DT_FLOAT")])
BYTES = _signature(
    [_spec("image_bytes", "DT_STRING")], [_spec("length", "DT_INT32"), _spec("echo_bytes", "DT_STRING")]
)
MULTI_IO = _signature(
    [_spec("a", "DT_FLOAT"), _spec("b", "DT_INT64")],
    [_spec("sum", "DT_FLOAT"), _spec("label", "DT_STRING"), _spec("count", "DT_INT32")],
)


def _mapped(leaf: Callable[[Any], Any], value: Any) -> Any:
    return [_mapped(leaf, element) for element in value] if isinstance(value, list) else leaf(value)


def _linear(offset: float) -> Callable[[Any], Any]:
    def leaf(value: Any) -> float:
        if type(value) not in {int, float}:
            raise Refused
        return 0.5 * float(value) + offset

    def predict(record: Any) -> Any:
        return _mapped(leaf, record["x"] if isinstance(record, dict) else record)

    return predict


def _bytes(record: Any) -> Any:
    return {
        "length": _mapped(lambda value: len(base64.b64decode(value["b64"])), record),
        "echo_bytes": record,
    }


def _multi_io(record: Any) -> Any:
    total = [float(addend + record["b"]) for addend in record["a"]]
    return {"sum": total, "label": "big" if sum(total) > 10 else "small", "count": record["b"] * 2}


MODELS: Mapping[tuple[str, int | None], tuple[Signature, Callable[[Any], Any]]] = {
    ("half_plus_two", None): (LINEAR, _linear(2)),
    ("versions", None): (LINEAR, _linear(3)),
    ("versions", 1): (LINEAR, _linear(2)),
    ("bytes", None): (BYTES, _bytes),
    ("multi_io", None): (MULTI_IO, _multi_io),
}


def _serve(call: Call) -> ModelAnswer:
    target = call.target
    body: Any = call.json
    if target.method == "regress":
        return _ok("results", [0.5 * example["x"] + 2 for example in body["examples"]])
    if target.method == "classify":
        scores = [0.5 * example["x"] + 2 for example in body["examples"]]
        return _ok("results", [[["low", 10 - score], ["high", score]] for score in scores])
    if (target.model, target.version) not in MODELS:
        return ModelAnswer(404, b'{"error": "Servable not found for request: Latest(nope)"}')
    predict = MODELS[target.model, target.version][1]
    try:
        if "instances" in body:
            return _ok("predictions", [predict(record) for record in body["instances"]])
        return _ok("outputs", predict(body["inputs"]))
    except Refused:
        return ModelAnswer(400, b'{"error": "is not of expected type: float"}')


def _ok(key: str, value: Any) -> ModelAnswer:
    return ModelAnswer(200, json.dumps({key: value}).encode())


def _target(headers: Mapping[str, str]) -> Target:
    pairs = headers.get("X-Amzn-SageMaker-Custom-Attributes", "").split(",")
    named = dict(pair.split("=") for pair in pairs if pair.startswith("tfs-"))
    version = named.get("tfs-model-version")
    return Target(
        named.get("tfs-model-name", "half_plus_two"),
        version=int(version) if version else None,
        method=named.get("tfs-method", "predict"),
    )


def _reply(row: Mapping[str, Any]) -> EncodedAnswer:
    target = _target(row["headers"])
    signature = MODELS.get((target.model, target.version), (LINEAR, None))[0]
    upstream = FakeUpstream({DEFAULT_SIGNATURE: signature}, _serve)
    headers = row["headers"]
    try:
        return answer(
            upstream, target, row["body"].encode(), headers.get("Content-Type"), headers.get("Accept")
        )
    except RequestError as refused:
        return EncodedAnswer(STATUS[type(refused)], json.dumps({"error": str(refused)}).encode())


@pytest.mark.parametrize(
    "row", [pytest.param(row, id=row["name"]) for row in GOLDEN if row["name"] not in OF_THE_EDGE]
)
def test_recorded_request(row: Mapping[str, Any]) -> None:
    """Status, body and media type are those that the recorded row wants."""
    reply, want = _reply(row), row["want"]
    assert reply.status == want["status"], reply.body
    if "json" in want:
        assert json.loads(reply.body) == want["json"]
    if "text" in want:
        assert reply.body.decode() == want["text"]
    assert reply.content_type == want.get("content_type", "application/json")
    if reply.status >= 400:
        assert isinstance(json.loads(reply.body)["error"], str)
