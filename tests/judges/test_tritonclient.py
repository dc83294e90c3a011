"""Triton's four clients, unchanged, on a real stack with several models: REST and gRPC, with and without asyncio."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.archives import has_nginx, pack, without_nginx
from support.judges import judge
from support.stack import Stack, serving

pytestmark = pytest.mark.tensorflow
MODELS = ("bytes", "echo", "multi_io", "versions")
ENV = {"TFS_PROXY_GRPC_PORT": "0", "SAGEMAKER_TFS_DEFAULT_MODEL_NAME": "multi_io"}
FRONTS = [
    pytest.param({}, id="nginx", marks=pytest.mark.skipif(not has_nginx(), reason="nginx is not installed")),
    pytest.param(without_nginx(), id="gunicorn", marks=pytest.mark.long),
]
PROTOCOLS = ("http", "http.aio", "grpc", "grpc.aio")
SCENARIOS = "health metadata inference envelope datatypes shapes compression refusals".split()
OF_HTTP = ("json_datatypes", "sagemaker")
INVALID, MISSING = ({"400", "StatusCode.INVALID_ARGUMENT"}, {"404", "StatusCode.NOT_FOUND"})
SUMS = [[2.0, 3.0, 4.0], [6.0, 7.0, 8.0]]
Seen = dict[str, Any]


@pytest.fixture(scope="module", params=FRONTS)
def stack(
    saved_models: Path, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Stack]:
    folders = {name: saved_models / name for name in MODELS}
    archive = pack(tmp_path_factory.mktemp("archive") / "model.tar.gz", {}, folders)
    with serving(str(archive), "--model-server", "embedded", env={**ENV, **request.param}) as running:
        yield running


@pytest.fixture(scope="module", params=PROTOCOLS)
def protocol(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def seen(stack: Stack, protocol: str) -> Seen:
    is_http = protocol.startswith("http")
    address = f"{stack.host}:{stack.port}" if is_http else stack.grpc
    scenarios = (*SCENARIOS, *(OF_HTTP if is_http else ()))
    return judge("tritonclient").saw("triton", protocol, address, *scenarios)


def test_it_sees_that_server_and_models_are_ready(seen: Seen) -> None:
    assert seen["health"] == {
        "live": True,
        "ready": True,
        "model": True,
        "version": True,
        "no version": False,
        "no model": False,
    }


def test_it_reads_metadata(seen: Seen) -> None:
    metadata = seen["metadata"]

    name, extensions = metadata["server"]
    assert (name, extensions) == ("tfs_proxy", ["binary_tensor_data"])
    assert metadata["model"] == ["multi_io", ["1"], "tensorflow_savedmodel"]
    assert metadata["same"] is True
    assert metadata["tensors"] == [
        {"a": ["FP32", [-1, 3]], "b": ["INT64", [-1]]},
        {"label": ["BYTES", [-1]], "sum": ["FP32", [-1, 3]], "count": ["INT32", [-1]]},
    ]


def test_every_way_to_send_and_ask_gives_the_same_answer(seen: Seen) -> None:
    answer = {"sum": SUMS, "count": [2, 4], "label": ["small", "big"]}

    assert list(seen["inference"].values()) == [answer] * len(seen["inference"])
    assert len(seen["inference"]) in {2, 6}


def test_what_surrounds_tensors_comes_back(seen: Seen) -> None:
    """Id, version and parameters of the request; the outputs asked for, in their order."""
    assert seen["envelope"] == {
        "id": "first one",
        "model": ["multi_io", "1"],
        "outputs": ["count", "sum"],
        "parameters": {"mine": "text", "number": "3", "flag": "True"},
    }


@pytest.mark.parametrize("scenario", ["datatypes", "json_datatypes"])
def test_every_datatype_passes_unchanged(seen: Seen, scenario: str) -> None:
    """Bit by bit, its limits among the elements; JSON carries all but the two-byte floats."""
    if scenario not in seen:
        pytest.skip("only REST has JSON")
    echoed = seen[scenario]

    assert "raised" not in echoed, echoed
    assert len(echoed) == (14 if scenario == "datatypes" else 12)
    assert {name: both["received"] for name, both in echoed.items()} == {
        name: both["sent"] for name, both in echoed.items()
    }


def test_every_shape_passes_unchanged(seen: Seen) -> None:
    """Without elements, without dimensions, and larger than gRPC's own limit of 4 MiB."""
    shapes = seen["shapes"]

    assert shapes.pop("large") is True
    assert shapes["no columns"]["received"] == {"dtype": "float16", "shape": [2, 0, 4], "elements": ""}
    assert {name: both["received"] for name, both in shapes.items()} == {
        name: both["sent"] for name, both in shapes.items()
    }


def test_packed_requests_get_packed_answers(seen: Seen, protocol: str) -> None:
    """By gzip and by deflate; of gRPC's messages only those that are packed by gzip are read."""
    packed = {"same": True, "packed": True}

    if protocol.startswith("http"):
        assert seen["compression"] == {"gzip": packed, "deflate": packed}
    else:
        assert seen["compression"] == {"gzip": "answered", "deflate": "StatusCode.UNIMPLEMENTED"}


def test_mistakes_get_their_status_and_name_what_is_wrong(seen: Seen) -> None:
    missing, wrong = seen["refusals"]["no model"], seen["refusals"]["datatype"]

    assert missing["status"] in MISSING, missing
    assert wrong["status"] in INVALID, wrong
    assert "INT32" in wrong["message"]


def test_what_it_writes_for_sagemaker_is_answered(seen: Seen) -> None:
    if "sagemaker" not in seen:
        pytest.skip("SageMaker has no gRPC")

    assert seen["sagemaker"] == {"sum": SUMS, "count": [2, 4]}
