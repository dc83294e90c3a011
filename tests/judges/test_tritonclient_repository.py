"""Triton's four clients, unchanged, on a server whose models come and go, and on a script that is a model."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from support.archives import has_nginx, pack
from support.judges import Judge
from support.multi_model import MultiModelStack, script_model, serving_many

pytestmark = [pytest.mark.tensorflow, pytest.mark.skipif(not has_nginx(), reason="nginx is not installed")]
PROTOCOLS = ("http", "http.aio", "grpc", "grpc.aio")
SCRIPT = """
import numpy as np


def model_fn(model_dir):
    return 2


def input_fn(data, content_type, context):
    return context.default_input(data)


def predict_fn(tensors, factor):
    words = [word.decode().upper() for word in tensors["words"]]
    return {"twice": factor * tensors["a"], "upper": np.array(words)}
"""
SERVED = "half.half_plus_two"


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory, saved_models: Path) -> Iterator[MultiModelStack]:
    """A folder with an archive of two models, which are loaded by none yet, and a script."""
    folder = tmp_path_factory.mktemp("archives")
    pack(folder / "half.tar.gz", {}, {name: saved_models / name for name in ("half_plus_two", "versions")})
    script_model(folder / "script.tar.gz", SCRIPT)
    with serving_many("--multi-model", str(folder), env={"TFS_PROXY_GRPC_PORT": "0"}) as running:
        yield running


@pytest.fixture(params=PROTOCOLS)
def saw(
    stack: MultiModelStack, judges: Callable[[str], Judge], request: pytest.FixtureRequest
) -> Callable[[str], Any]:
    protocol = str(request.param)
    address = f"{stack.host}:{stack.port}" if protocol.startswith("http") else stack.grpc
    return lambda name: judges("tritonclient").saw("triton", protocol, address, name)[name]


def test_it_loads_and_unloads_models(saw: Callable[[str], Any]) -> None:
    seen = saw("repository")

    assert "raised" not in seen, seen
    assert seen["before"]["half"] == "UNAVAILABLE"
    assert seen["loaded"][f"{SERVED} 1"] == "READY"
    assert seen["ready"] is True
    assert seen["answer"] == [2.5, 2.5]
    assert seen["statistics"] == SERVED
    assert seen["unloaded"] == seen["before"]
    assert seen["on demand"] == [3.5, 3.5]
    assert seen["no model"]["status"] in {"404", "StatusCode.NOT_FOUND"}, seen["no model"]


def test_a_script_takes_and_gives_tensors(saw: Callable[[str], Any], request: pytest.FixtureRequest) -> None:
    """By the names of its inputs and outputs; over gRPC there are no scripts, and the error says so."""
    seen = saw("script")

    if "grpc" in request.node.callspec.params["saw"]:
        assert "UNIMPLEMENTED" in seen["raised"]
    else:
        twice = {"dtype": "float32", "shape": [2, 2], "elements": "00000040000080400000c04000000041"}
        upper = {"dtype": "object", "shape": [2], "elements": [b"LEFT".hex(), b"RIGHT".hex()]}
        assert seen == {"twice": twice, "upper": upper}
