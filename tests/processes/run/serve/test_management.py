"""Who may change what `tfs-proxy serve` runs: reloads go over the socket in its own folder alone."""

import stat
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

from support.predict_messages import request_bytes, response_arrays
from support.stack import Stack
from tfs_proxy.wire import protos
from tfs_proxy.wire.protos.predict import model_spec

pytestmark = pytest.mark.tensorflow

PREDICT = "/tensorflow.serving.PredictionService/Predict"
MODEL_STATUS = "/tensorflow.serving.ModelService/GetModelStatus"
RELOAD = "/tensorflow.serving.ModelService/HandleReloadConfigRequest"


def flag(served: Stack, name: str) -> str:
    """A flag of its model server."""
    (pid,) = served.children()["embedded"]
    words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    return next(word.partition("=")[2] for word in words if word.startswith(f"--{name}="))


def refusal(address: str) -> tuple[str, str]:
    """Code and text of the error of an empty reload."""
    with grpc.insecure_channel(address) as channel, pytest.raises(grpc.RpcError) as caught:
        channel.unary_unary(RELOAD)(b"", timeout=30)
    error: Any = caught.value
    return error.code().name, error.details()


def test_nobody_manages_the_model_server_over_tcp(served: Stack) -> None:
    """Any local user reaches 127.0.0.1, and a reload would put another model in the place of the served one."""
    code, text = refusal(f"127.0.0.1:{flag(served, 'port')}")

    assert code == "PERMISSION_DENIED"
    assert "unix socket" in text


def test_who_may_enter_its_folder_manages_the_model_server(served: Stack) -> None:
    """On the unix socket the call is looked at; the folder is the user's own."""
    path = Path(flag(served, "grpc_socket_path"))

    assert refusal(f"unix:{path}")[0] == "INVALID_ARGUMENT"
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_scripts_predict_over_tcp(served: Stack) -> None:
    """`context.grpc_port` leads to predictions and to the model's status."""
    with grpc.insecure_channel(f"127.0.0.1:{flag(served, 'port')}") as channel:
        message = request_bytes(model_spec("half_plus_two"), {"x": np.ones(1, np.float32)})
        assert response_arrays(channel.unary_unary(PREDICT)(message, timeout=30))["y"].tolist() == [2.5]
        status = protos.GetModelStatusRequest()
        status.model_spec.name = "half_plus_two"
        assert channel.unary_unary(MODEL_STATUS)(status.SerializeToString(), timeout=30)
