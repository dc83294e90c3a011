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
