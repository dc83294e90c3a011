"""TF Serving's clients against `docker run`: both its APIs, at their usual ports."""

from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

from support.containers import Container, container, docker, mounted
from support.predict_messages import request_bytes, response_arrays
from support.running import LOOPBACK
from tfs_proxy.wire.protos.predict import model_spec

PREDICT = "/tensorflow.serving.PredictionService/Predict"
RELOAD = "/tensorflow.serving.ModelService/HandleReloadConfigRequest"
PUBLISHED = ("-p", f"{LOOPBACK}::8500")
SECONDS = 30.0


def grpc_address(running: Container) -> str:
    return docker("port", running.name, "8500").splitlines()[0]


def test_rest_and_grpc_are_published(plain: Path) -> None:
    """`docker run -p 8080:8080 -p 8500:8500`, and nothing else to say; the configuration stays inside."""
    with (
        container(*mounted(plain), *PUBLISHED) as running,
        grpc.insecure_channel(grpc_address(running)) as channel,
    ):
        message = request_bytes(model_spec("half_plus_two"), {"x": np.ones(2, np.float32)})
        answered = response_arrays(channel.unary_unary(PREDICT)(message, timeout=SECONDS))
        rest = running.ask("POST", "/v1/models/half_plus_two/versions/1:predict", '{"instances": [1.0]}')
        with pytest.raises(grpc.RpcError) as caught:
            channel.unary_unary(RELOAD)(b"", timeout=SECONDS)
        refused: Any = caught.value

        assert answered["y"].tolist() == [2.5, 2.5]
        assert rest.json == {"predictions": [2.5]}
        assert refused.code() is grpc.StatusCode.UNIMPLEMENTED
        assert "deprecated" not in running.log


def test_the_grpc_port_stays_shut_where_sagemaker_chooses_the_ports(plain: Path) -> None:
    env = {"SAGEMAKER_BIND_TO_PORT": "8080", "SAGEMAKER_SAFE_PORT_RANGE": "21000-21999"}
    with container(*mounted(plain), *PUBLISHED, env=env) as running:
        with grpc.insecure_channel(grpc_address(running)) as channel, pytest.raises(grpc.RpcError) as caught:
            channel.unary_unary(PREDICT)(b"", timeout=5)
        refused: Any = caught.value

        assert refused.code() in {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED}
        assert running.ask("GET", "/v1/models/half_plus_two").status == 200
        assert "listening for gRPC" not in running.log
