"""TF Serving's clients against `docker run`: both its APIs, at their usual ports."""

from pathlib import Path

import grpc

from support.containers import Container, container, docker, mounted
from support.grpc_calls import SECONDS, ones, predict, refusal
from support.running import LOOPBACK

RELOAD = "/tensorflow.serving.ModelService/HandleReloadConfigRequest"
PUBLISHED = ("-p", f"{LOOPBACK}::8500")


def grpc_address(running: Container) -> str:
    return docker("port", running.name, "8500").splitlines()[0]


def test_rest_and_grpc_are_published(plain: Path) -> None:
    """`docker run -p 8080:8080 -p 8500:8500`, and nothing else to say; the configuration stays inside."""
    with (
        container(*mounted(plain), *PUBLISHED) as running,
        grpc.insecure_channel(grpc_address(running)) as channel,
    ):
        answered = predict(channel, ones(2))
        rest = running.ask("POST", "/v1/models/half_plus_two/versions/1:predict", '{"instances": [1.0]}')
        refused, _ = refusal(lambda: channel.unary_unary(RELOAD)(b"", timeout=SECONDS))

        assert answered["y"].tolist() == [2.5, 2.5]
        assert rest.json == {"predictions": [2.5]}
        assert refused == "UNIMPLEMENTED"
        assert "deprecated" not in running.log


def test_the_grpc_port_stays_shut_where_sagemaker_chooses_the_ports(plain: Path) -> None:
    env = {"SAGEMAKER_BIND_TO_PORT": "8080", "SAGEMAKER_SAFE_PORT_RANGE": "21000-21999"}
    with container(*mounted(plain), *PUBLISHED, env=env) as running:
        with grpc.insecure_channel(grpc_address(running)) as channel:
            refused, _ = refusal(lambda: channel.unary_unary(RELOAD)(b"", timeout=5))

        assert refused in {"UNAVAILABLE", "DEADLINE_EXCEEDED"}
        assert running.ask("GET", "/v1/models/half_plus_two").status == 200
        assert "listening for gRPC" not in running.log
