"""`docker run` as people know it from tensorflow/serving, on our image: nothing changes but its name."""

import contextlib
import http.client
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pytest

from support import grpc_calls
from support.containers import Container, container, docker, mounted
from support.grpc_calls import ones
from support.running import LOOPBACK

PUBLISHED = ("-p", f"{LOOPBACK}::8500", "-p", f"{LOOPBACK}::8080")
ASKED, ANSWERED = '{"instances": [1.0, 2.0]}', {"predictions": [2.5, 3.0]}
HEALTHCHECK = "/usr/local/lib/tfs-proxy/healthcheck"


def folder(saved_models: Path, name: str = "half_plus_two") -> tuple[str, str]:
    """The option that puts a model's folder where tensorflow/serving looks for it."""
    return "-v", f"{saved_models / 'half_plus_two'}:/models/{name}:ro"


def healthy(running: Container) -> bool:
    """Whether the image's HEALTHCHECK command is content."""
    return running.run("sh", "-c", f"{HEALTHCHECK}; echo $?", check=False) == "0"


def predict(running: Container, name: str) -> Any:
    """What the published port, which stands for 8501, answers."""
    return running.ask("POST", f"/v1/models/{name}:predict", ASKED).json


@pytest.mark.parametrize(
    ("options", "env"),
    [
        ((), {"MODEL_NAME": "half_plus_two"}),
        ((), {}),
        (("--user", "10001", "--read-only", "--tmpfs", "/tmp"), {}),
    ],
    ids=["named", "the only one in /models", "read-only"],
)
def test_the_tutorials_command_serves_its_model(
    saved_models: Path, options: tuple[str, ...], env: dict[str, str]
) -> None:
    """`docker run -p 8501:8501 -v .../half_plus_two:/models/half_plus_two -e MODEL_NAME=half_plus_two`."""
    mount = folder(saved_models)
    with container(*PUBLISHED, *options, *mount, command=(), env=env, inside=8501, ready=False) as running:
        running.wait_until(lambda: healthy(running), "the health check succeeds")
        front, grpc_address = (
            docker("port", running.name, port).splitlines()[0] for port in ("8080", "8500")
        )
        with grpc.insecure_channel(grpc_address) as channel:
            answered = grpc_calls.predict(channel, ones(2))
        rest = predict(running, "half_plus_two")
        running.port = int(front.rpartition(":")[2])

        assert answered["y"].tolist() == [2.5, 2.5]
        assert rest == ANSWERED
        assert running.invoke("1.0\n2.0\n", "text/csv").json == ANSWERED
        docker("stop", "-t", "30", running.name)
        assert running.state["ExitCode"] == 0


@pytest.mark.parametrize(
    ("program", "flags"),
    [
        ("/usr/bin/tf_serving_entrypoint.sh", ()),
        (
            "tensorflow_model_server",
            ("--port=8500", "--rest_api_port=8501", "--model_name=m", "--model_base_path=/models/m"),
        ),
    ],
)
def test_programs_of_the_other_image_are_there_for_manifests(
    saved_models: Path, program: str, flags: tuple[str, ...]
) -> None:
    """As `command:` of a pod, in place of the image's entry point; both APIs are reached from outside."""
    options = (*PUBLISHED, "--entrypoint", program, *folder(saved_models, "m"))
    with container(*options, command=flags, env={"MODEL_NAME": "m"}, inside=8501, ready=False) as running:
        path = "/v1/models/m:predict"
        running.wait_until(
            lambda: attempted(lambda: running.ask("POST", path, ASKED).status == 200), "it serves"
        )
        address = docker("port", running.name, "8500").splitlines()[0]
        with grpc.insecure_channel(address) as channel:
            answered = grpc_calls.predict(channel, ones(2), "m")

        assert predict(running, "m") == ANSWERED
        assert answered["y"].tolist() == [2.5, 2.5]


def attempted(condition: Callable[[], bool]) -> bool:
    """Whether a condition holds; not while nobody listens."""
    with contextlib.suppress(OSError, http.client.HTTPException):
        return condition()
    return False


def test_sagemakers_word_and_folder_come_before_models(plain: Path, saved_models: Path) -> None:
    """With `serve`, and with an archive in /opt/ml/model, nothing is as in tensorflow/serving."""
    for command in (("serve",), ()):
        with container(*mounted(plain), *folder(saved_models, "other"), command=command) as running:
            assert running.invoke(ASKED).json == ANSWERED
            assert running.ask("GET", "/v1/models/other").status == 404
