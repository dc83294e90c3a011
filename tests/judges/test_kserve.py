"""kserve's own clients, unchanged, over REST (TF Serving's API and the Open Inference Protocol) and gRPC."""

from typing import Any

import pytest

from support.judges import judge
from support.stack import Stack

pytestmark = pytest.mark.tensorflow

SUMS = {"datatype": "FP32", "shape": [2, 3], "values": [2.0, 3.0, 4.0, 24.0, 25.0, 26.0]}
COUNTS = {"datatype": "INT32", "shape": [2], "values": [2, 40]}
LABELS = {"datatype": "BYTES", "shape": [2]}


@pytest.fixture(scope="module")
def rest(several: Stack) -> dict[str, Any]:
    return judge("kserve").saw("kserve_rest", f"http://{several.host}:{several.port}")


@pytest.fixture(scope="module")
def grpc(several: Stack) -> dict[str, Any]:
    return judge("kserve").saw("kserve_grpc", several.grpc)


def test_v1_finds_server_and_model_ready(rest: dict[str, Any]) -> None:
    """`/` says that the server is alive, and a model's status that it is ready."""
    assert rest["v1"]["live"] is True
    assert rest["v1"]["ready"] is True
    assert rest["v1"]["unknown"]["status"] == 404


def test_v1_predicts(rest: dict[str, Any]) -> None:
    """Instances become predictions; what the model can't take is the client's mistake."""
    assert rest["v1"]["predictions"] == {"predictions": [2.5, 3.0, 4.5]}
    assert rest["v1"]["wrong"]["status"] == 400


def test_v2_finds_server_and_model_ready(rest: dict[str, Any]) -> None:
    """Liveness, readiness of the server, of a model, and of one that is not there."""
    states = {name: rest["v2"][name] for name in ("live", "ready", "model_ready", "unknown_ready")}

    assert states == {"live": True, "ready": True, "model_ready": True, "unknown_ready": False}


@pytest.mark.parametrize("way", ["json", "binary"])
def test_v2_infers(rest: dict[str, Any], way: str) -> None:
    """Tensors in JSON or behind it give the same outputs, of three datatypes, and the request's id."""
    answer = rest["v2"][way]

    assert (answer["id"], answer["model"]) == ("from-kserve", "multi_io")
    assert answer["outputs"]["sum"] == SUMS
    assert answer["outputs"]["count"] == COUNTS
    assert answer["outputs"]["label"].items() >= LABELS.items()


def test_v2_carries_bytes_and_halves(rest: dict[str, Any]) -> None:
    """Text as bytes, and half precision, come back as they were sent, as binary data."""
    outputs = rest["v2"]["bytes"]["outputs"]

    assert outputs["echo_bytes"] == {"datatype": "BYTES", "shape": [3], "values": ["\0\n", "", "ä"]}
    assert outputs["length"] == {"datatype": "INT32", "shape": [3], "values": [2, 0, 2]}
    (halves,) = rest["v2"]["halves"]["outputs"].values()
    assert halves == {"datatype": "FP16", "shape": [2], "values": [1.5, -0.0]}


def test_v2_chooses_a_signature(rest: dict[str, Any]) -> None:
    (norm,) = rest["v2"]["signature"]["outputs"].values()

    assert norm["values"] == pytest.approx([14**0.5, 77**0.5])


def test_v2_refuses(rest: dict[str, Any]) -> None:
    assert rest["v2"]["wrong"]["status"] == 400
    assert '"other"' in rest["v2"]["wrong"]["text"]
    assert rest["v2"]["unknown"]["status"] == 404
    assert "nobody" in rest["v2"]["unknown"]["text"]


def test_grpc_finds_server_and_model_ready(grpc: dict[str, Any]) -> None:
    assert {name: grpc[name] for name in ("live", "ready", "model_ready")} == {
        "live": True,
        "ready": True,
        "model_ready": True,
    }


@pytest.mark.parametrize("way", ["raw", "contents"])
def test_grpc_infers(grpc: dict[str, Any], way: str) -> None:
    answer = grpc[way]

    assert (answer["id"], answer["model"], answer["version"]) == ("from-kserve", "multi_io", "1")
    assert answer["outputs"]["sum"] == SUMS
    assert answer["outputs"]["count"] == COUNTS
    assert answer["outputs"]["label"].items() >= LABELS.items()


def test_grpc_refuses(grpc: dict[str, Any]) -> None:
    assert grpc["wrong"]["code"] == "INVALID_ARGUMENT"
    assert '"c"' in grpc["wrong"]["text"]
    assert grpc["unknown"]["code"] == "NOT_FOUND"
    assert grpc["unknown_ready"]["code"] in ("OK", "NOT_FOUND")
