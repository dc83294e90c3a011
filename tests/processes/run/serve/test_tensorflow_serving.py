"""`tfs-proxy tensorflow-serving` in the place of the image tensorflow/serving: its flags, its ports, its ways."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

from support.load_generator import load
from support.ports import free_port
from support.predict_messages import request_bytes, response_arrays
from support.stack import DropIn
from support.waiting import within
from tfs_proxy.wire.protos.predict import model_spec

pytestmark = pytest.mark.tensorflow

PREDICT = "/tensorflow.serving.PredictionService/Predict"
SECONDS = 60.0
WAIT_TIME_SECONDS = 10.0
"""Workers have this time to load the application, too: less would be too little on a busy machine."""

LOOKS_SECONDS = 3.0
"""In which the supervisor looks at the models at least once: it does every second."""

SCRIPT = """
def handler(data, context):
    return context.predict({"x": [float(data.read())]})["y"].tolist()[0].__repr__(), "text/plain"
"""

Start = Callable[..., DropIn]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts stacks, which are stopped after the test."""
    started: list[DropIn] = []

    def start(*flags: str, **env: str) -> DropIn:
        started.append(DropIn(*flags, env=env))
        return started[-1]

    yield start
    for stack in started:
        stack.close()


def models(folder: Path, saved_models: Path, *names: str) -> Path:
    """A folder as tensorflow/serving has it at /models."""
    for name in names:
        shutil.copytree(saved_models / "half_plus_two", folder / name)
    return folder


def config_of(base: Path, *names: str) -> Path:
    """A config file with these models of ``base``, taken over from one moment to the next."""
    entries = (
        f'config {{ name: "{name}" base_path: "{base}/{name}" model_platform: "tensorflow" }}'
        for name in names
    )
    (base / "new.config").write_text(f"model_config_list {{ {' '.join(entries)} }}")
    return (base / "new.config").rename(base / "models.config")


def rest(stack: DropIn, name: str, path: str = ":predict") -> Any:
    """What a client of tensorflow/serving's REST port is answered."""
    body = '{"instances": [1.0]}' if path == ":predict" else None
    return stack.ask_rest("POST" if body else "GET", f"/v1/models/{name}{path}", body).json


def test_a_model_by_name_answers_on_every_port(start: Start, saved_models: Path, tmp_path: Path) -> None:
    """MODEL_NAME below MODEL_BASE_PATH: REST and gRPC as there, and conversions at /invocations; also after its death."""
    base = models(tmp_path / "models", saved_models, "half_plus_two", "other")
    stack = start(MODEL_NAME="half_plus_two", MODEL_BASE_PATH=str(base))
    stack.wait_ready()
    with grpc.insecure_channel(f"127.0.0.1:{stack.grpc_port}") as channel:
        message = request_bytes(model_spec("half_plus_two"), {"x": np.ones(2, np.float32)})
        answered = response_arrays(channel.unary_unary(PREDICT)(message, timeout=SECONDS))
    csv = stack.ask("POST", "/invocations", "1.0\n2.0\n", {"Content-Type": "text/csv", "Accept": "text/csv"})

    assert answered["y"].tolist() == [2.5, 2.5]
    assert rest(stack, "half_plus_two") == {"predictions": [2.5]}
    assert csv.body == b"2.5\n3.0\n"
    assert stack.ask("POST", "/invocations", '{"instances": [1.0]}').json == {"predictions": [2.5]}
    assert stack.ask("GET", "/v1/models/half_plus_two/metadata").status == 200
    assert rest(stack, "other") == {"error": "Servable not found for request: Latest(other)"}
    os.kill(stack.children()["embedded"][0], signal.SIGKILL)
    assert stack.invoke('{"instances": [1.0]}').json == {"predictions": [2.5]}  # it waits for the next one
    stack.wait_until(lambda: answers_again(stack), "the model server's own ports answer again")
    assert stack.stop() == 0


def answers_again(stack: DropIn) -> bool:
    """Whether the model server's REST port, which it opens by itself, answers."""
    with contextlib.suppress(OSError):
        return bool(rest(stack, "half_plus_two") == {"predictions": [2.5]})
    return False


def test_a_new_version_is_taken_and_the_old_one_left(
    start: Start, saved_models: Path, tmp_path: Path
) -> None:
    """From an empty folder on, /ping and /invocations follow the model server; no request fails between two versions."""
    base = tmp_path / "models"
    (base / "half").mkdir(parents=True)
    stack = start(MODEL_NAME="half", MODEL_BASE_PATH=str(base))
    stack.wait_for_log("Model half, from")
    wait_for_no_version(stack)

    shutil.copytree(saved_models / "half_plus_two" / "1", base / "half" / "1")
    stack.wait_ready()
    shutil.copytree(saved_models / "half_plus_two" / "1", base / "half" / ".2")
    with load(stack.port):
        (base / "half" / ".2").rename(base / "half" / "2")
        wait_for_status(stack, "half", "/versions/1", '"END"')

    assert stack.ask("GET", "/ping").status == 200
    assert stack.ask("POST", "/invocations", '{"instances": [1.0]}').json == {"predictions": [2.5]}
    assert stack.ask("POST", "/invocations", "1.0", {"Content-Type": "text/csv"}).json == {
        "predictions": [2.5]
    }


def test_an_empty_folder_is_waited_for_without_a_limit(start: Start, tmp_path: Path) -> None:
    """SAGEMAKER_TFS_WAIT_TIME_SECONDS bounds a start with a model, not one that waits for its first version."""
    (tmp_path / "half").mkdir()
    limit = {"SAGEMAKER_TFS_WAIT_TIME_SECONDS": f"{WAIT_TIME_SECONDS:g}"}
    stack = start(MODEL_NAME="half", MODEL_BASE_PATH=str(tmp_path), **limit)
    stack.wait_until(
        lambda: time.monotonic() > stack.began + 1.2 * WAIT_TIME_SECONDS, "the time for a start is over"
    )

    wait_for_no_version(stack)
    assert (stack.stop(), "Traceback" in stack.log) == (0, False)


def wait_for_no_version(stack: DropIn) -> None:
    """Wait until /ping says that the model's folder is empty."""
    reason = "has found no version of it"
    stack.wait_until(lambda: reason in stack.ask("GET", "/ping").body.decode(), f"/ping says {reason!r}")


def wait_for_status(stack: DropIn, name: str, path: str, text: str) -> None:
    """Wait until the model server's status of a model has ``text``."""
    stack.wait_until(lambda: text in json.dumps(rest(stack, name, path)), f"the status of {name} has {text}")


def test_a_config_file_names_the_models_and_is_followed(
    start: Start, saved_models: Path, tmp_path: Path
) -> None:
    """All of them answer at /invocations by tfs-model-name, the default without; one taken out of it is not missed."""
    base = models(tmp_path / "models", saved_models, "a", "b", "c")
    config = config_of(base, "a", "b")
    flags = (f"--model_config_file={config}", "--model_config_file_poll_wait_seconds=1")
    stack = start(*flags, SAGEMAKER_TFS_DEFAULT_MODEL_NAME="b")
    stack.wait_ready()

    def statuses() -> list[int]:
        named = ("", "tfs-model-name=a", "tfs-model-name=c")
        return [
            stack.invoke("1.0", "text/csv", X_Amzn_SageMaker_Custom_Attributes=name).status for name in named
        ]

    assert rest(stack, "a") == rest(stack, "b") == {"predictions": [2.5]}
    assert statuses() == [200, 200, 404]
    config_of(base, "b", "c")
    wait_for_status(stack, "c", "", '"AVAILABLE"')
    stack.wait_until(lambda: "AVAILABLE" not in json.dumps(rest(stack, "a", "")), "a is not available")
    assert not within(LOOKS_SECONDS, lambda: stack.ask("GET", "/ping").status != 200)
    stack.wait_until(lambda: statuses() == [200, 404, 200], "c answers, and a does no more")


def test_flags_on_the_command_line_win(start: Start, saved_models: Path, tmp_path: Path) -> None:
    """The later of two flags of one name counts, ours among them; the rest port may be that of /invocations."""
    base = models(tmp_path / "models", saved_models, "half")
    port = free_port()
    stack = start(
        f"--rest_api_port={port}",
        "--model_name=m",
        f"--model_base_path={base}/half",
        SAGEMAKER_BIND_TO_PORT=str(port),
    )
    stack.wait_ready()

    assert stack.ask("POST", "/v1/models/m:predict", '{"instances": [1.0]}').json == {"predictions": [2.5]}
    assert stack.invoke('{"instances": [1.0]}').json == {"predictions": [2.5]}


def test_a_script_beside_the_versions_answers_invocations(
    start: Start, saved_models: Path, tmp_path: Path
) -> None:
    """The model server's own ports do not go through it."""
    base = models(tmp_path / "models", saved_models, "half")
    (base / "half" / "code").mkdir()
    (base / "half" / "code" / "inference.py").write_text(SCRIPT)
    stack = start(MODEL_BASE_PATH=str(base))
    stack.wait_ready()

    assert stack.ask("POST", "/invocations", "3").body == b"3.5"
    assert rest(stack, "half") == {"predictions": [2.5]}


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--no_such_flag=1"], "Unknown flag of the model server: --no_such_flag=1"),
        (["--model_config_file=/no/such/file"], "Can't read /no/such/file"),
        (["--rest_api_port=99999999"], "--rest_api_port=99999999"),
    ],
)
def test_the_model_server_refuses_its_flags_itself(start: Start, flags: list[str], said: str) -> None:
    """With its own words and exit status."""
    stack = start(*flags)

    assert stack.wait() == 2
    assert said in stack.log
    assert "Traceback" not in stack.log


def entry(*words: str, **env: str) -> "subprocess.CompletedProcess[str]":
    """Run the images' entry point, without a container."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("SAGEMAKER_", "TFS_"))}
    command = [sys.executable, "-m", "tfs_proxy.cli", "container", *words]
    return subprocess.run(
        command, capture_output=True, text=True, env={**clean, **env}, timeout=180, check=False
    )


def test_the_entry_point_runs_commands_flags_and_programs() -> None:
    """The first word decides; a program takes the process over, its exit status included."""
    program = entry("bash", "-c", "yes | head -1; exit 7", TFS_PROXY_GRPC_PORT="no port")
    missing = entry("train")
    folder = entry("/tmp")
    port = "8080"
    taken = entry(f"--port={port}", SAGEMAKER_BIND_TO_PORT=port)

    assert (program.returncode, program.stdout, program.stderr) == (7, "y\n", "")
    assert entry("check", "--help").stdout.startswith("usage: tfs-proxy check")
    assert "TensorFlow ModelServer:" in entry("--version").stdout
    assert f"--port={port} can't be used: /invocations has this port" in taken.stderr
    assert missing.returncode == 127
    assert "train is neither a command of tfs-proxy (demo, serve, " in missing.stderr
    assert (folder.returncode, folder.stderr) == (126, "tfs-proxy: /tmp can't be run: Permission denied.\n")
