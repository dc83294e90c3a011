"""Exports the models for `serving.py`, and starts and stops servers on free ports."""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from processes import cpu_seconds, tree

START_SECONDS = 120
EXPORT = """
import sys
import tensorflow as tf
from tensorflow.python.data.experimental.ops import testing

root = sys.argv[1]

def save(name, spec, function):
    module = tf.Module()
    module.run = tf.function(function, input_signature=[spec])
    tf.saved_model.save(module, f"{root}/{name}/1", signatures=module.run)

def waiting(x):
    # The dataset is read twice, once for the element and once for its end: 50 ms each.
    slow = tf.data.Dataset.from_tensors(x).apply(testing.sleep(50_000))
    return {"y": slow.get_single_element() * 2.0}

save("tiny", tf.TensorSpec([None], tf.float32, name="x"), lambda x: {"y": 0.5 * x + 2.0})
save("jpeg", tf.TensorSpec([None], tf.string, name="image_bytes"), lambda image_bytes: {"y": tf.strings.length(image_bytes)})
save("f224", tf.TensorSpec([None, 224, 224, 3], tf.float32, name="image"), lambda image: {"y": tf.reduce_mean(image, [1, 2, 3])})
save("rows", tf.TensorSpec([None, 100], tf.float32, name="x"), lambda x: {"y": tf.reduce_sum(x, 1)})
save("waiting", tf.TensorSpec([None], tf.float32, name="x"), waiting)
"""

SCRIPT = """
import base64
import json

import numpy as np


def input_handler(data, context):
    kind = context.request_content_type
    if kind == "image/jpeg":
        image = base64.b64encode(data.read()).decode("utf-8")
        return json.dumps({"instances": [{"b64": image}]})
    if kind == "image/x-bytes":
        return {"image_bytes": [data.read()]}
    if kind == "application/octet-stream":
        return np.frombuffer(data.read(), np.float32).reshape(1, 224, 224, 3)
    return data.read().decode("utf-8")


def output_handler(response, context):
    if response.status_code != 200:
        raise ValueError(response.content.decode("utf-8"))
    if context.request_content_type in ("image/x-bytes", "application/octet-stream"):
        return json.dumps({"y": response.outputs["y"].tolist()}), "application/json"
    return response.content, "application/json"
"""


@dataclass(frozen=True)
class Running:
    """A server that answers: its address, its process, and the seconds and CPU seconds that its start took."""

    url: str
    pid: int
    start_seconds: float
    start_cpu_seconds: float


@dataclass(frozen=True)
class Alone:
    """A model server without a stack: the process, the URL of its models, and its gRPC address."""

    server: Running
    models_url: str
    grpc_address: str


def export_models(folder: Path) -> Path:
    """The models of all rows, in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", EXPORT, str(folder)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(done.stderr)
    return folder


def with_script(models: Path, folder: Path) -> Path:
    """A copy of the models at ``folder``, with the script of the rows that have one."""
    shutil.copytree(models, folder)
    (folder / "code").mkdir()
    (folder / "code" / "inference.py").write_text(SCRIPT)
    return folder


def only(model: Path, folder: Path) -> Path:
    """A copy of one model at ``folder``, as an archive that has no other."""
    shutil.copytree(model, folder / model.name)
    return folder


def free_port() -> int:
    """A loopback port that nothing listens on."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        return int(holder.getsockname()[1])


@contextmanager
def serve(model: Path | None, model_server: str, env: Mapping[str, str] | None = None) -> Iterator[Running]:
    """Our whole stack; without a model if ``env`` says that many are to come."""
    port = free_port()
    words = [sys.executable, "-m", "tfs_proxy.cli", "serve", *([] if model is None else [str(model)])]
    words += ["--host", "127.0.0.1", "--port", str(port), "--model-server", model_server]
    settings = {**({} if model is None else {"SAGEMAKER_TFS_DEFAULT_MODEL_NAME": "tiny"}), **(env or {})}
    with running(words, f"http://127.0.0.1:{port}", "/ping", settings) as server:
        yield server


@contextmanager
def baseline(rest_url: str) -> Iterator[Running]:
    """The baseline proxy, in front of a running model server."""
    port = free_port()
    words = [sys.executable, "-m", "gunicorn", "baseline:app", "--chdir", str(Path(__file__).parent)]
    words += [
        "--worker-class",
        "gevent",
        "--workers",
        "1",
        "--bind",
        f"127.0.0.1:{port}",
        "--no-control-socket",
    ]
    url = f"http://127.0.0.1:{port}"
    with running(words, url, "/nothing", {"BASELINE_REST": rest_url}, status=404) as server:
        yield server


@contextmanager
def running(
    words: list[str],
    url: str,
    path: str,
    env: Mapping[str, str],
    *,
    status: int = 200,
    body: bytes | None = None,
) -> Iterator[Running]:
    """A process until it answers a GET, or a POST of a JSON body; and its end, with all that it has started."""
    began = time.monotonic()
    process = subprocess.Popen(
        words, env={**os.environ, **env}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        while not answers(url + path, status, body):
            if process.poll() is not None or time.monotonic() - began > START_SECONDS:
                sys.exit(f"{' '.join(words)} did not answer, or ended with {process.poll()}")
            time.sleep(0.005)
        took = time.monotonic() - began
        yield Running(url, process.pid, took, sum(cpu_seconds(process.pid).values()))
    finally:
        started = list(tree(process.pid))
        process.send_signal(signal.SIGTERM)
        process.wait(60)
        for left in started:
            with suppress(ProcessLookupError):
                os.kill(left, signal.SIGKILL)


def answers(url: str, status: int, body: bytes | None = None) -> bool:
    """Whether a GET, or a POST of a JSON body, is answered with this status."""
    try:
        asked = urllib.request.Request(url, body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(asked, timeout=5) as answer:
            return bool(answer.status == status)
    except urllib.error.HTTPError as error:
        return error.code == status
    except OSError:
        return False


def model_server_words(choice: str) -> list[str]:
    """The program that ``--model-server`` stands for: ``auto`` takes the official binary if it is on PATH."""
    program = shutil.which("tensorflow_model_server") if choice == "auto" else None
    if program or choice not in {"auto", "embedded"}:
        return [program or choice]
    return [sys.executable, "-m", "tfs_proxy.embedded"]


@contextmanager
def server_alone(
    models: Path, names: Sequence[str], choice: str, flags: Sequence[str] = ()
) -> Iterator[Alone]:
    """The model server without a stack, once all models answer."""
    rest, rpc = free_port(), free_port()
    with tempfile.NamedTemporaryFile("w", suffix=".config") as config:
        entries = [
            f'config {{ name: "{name}" base_path: "{models / name}" model_platform: "tensorflow" }}'
            for name in names
        ]
        config.write("model_config_list { " + " ".join(entries) + " }")
        config.flush()
        words = [*model_server_words(choice), f"--port={rpc}", f"--rest_api_port={rest}"]
        words += [f"--model_config_file={config.name}", *flags]
        url = f"http://127.0.0.1:{rest}"
        with running(words, url, f"/v1/models/{names[-1]}/metadata", {}) as server:
            yield Alone(server, f"{url}/v1/models", f"127.0.0.1:{rpc}")


def rest_url(pid: int) -> str:
    """The REST address of a run's model server, from its command line."""
    for each in tree(pid):
        match = re.search(rb"--rest_api_port=(\d+)", Path(f"/proc/{each}/cmdline").read_bytes())
        if match:
            return f"http://127.0.0.1:{int(match[1])}"
    sys.exit("no model server found")
