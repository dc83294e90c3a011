"""Exports the models for `serving.py`, and starts and stops servers on free ports."""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

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
    """A server that answers: its address, its process, and the seconds that its start took."""

    url: str
    pid: int
    start_seconds: float


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
    with running(words, f"http://127.0.0.1:{port}", "/nothing", {"BASELINE_REST": rest_url}) as server:
        yield server


@contextmanager
def running(words: list[str], url: str, path: str, env: Mapping[str, str]) -> Iterator[Running]:
    """A process until it answers, and its end."""
    began = time.monotonic()
    process = subprocess.Popen(
        words, env={**os.environ, **env}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        while not answers(url + path):
            if process.poll() is not None:
                sys.exit(f"{words[2]} ended with {process.returncode}")
            time.sleep(0.005)
        yield Running(url, process.pid, time.monotonic() - began)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def answers(url: str) -> bool:
    """Whether a GET is answered with anything but 503."""
    try:
        with urllib.request.urlopen(url, timeout=5):
            return True
    except urllib.error.HTTPError as error:
        return error.code == 404
    except OSError:
        return False


def descendants(pid: int) -> Iterator[int]:
    """All processes below ``pid``."""
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            yield int(child)
            yield from descendants(int(child))


def memory(pid: int) -> dict[str, list[float]]:
    """Proportional set size in MB of every process of a run, by name."""
    sizes: dict[str, list[float]] = {}
    for each in (pid, *descendants(pid)):
        words = Path(f"/proc/{each}/cmdline").read_bytes().replace(b"\0", b" ").decode()
        names = (
            "nginx",
            "gunicorn",
            "tfs_proxy.embedded",
            "tensorflow_model_server",
            "watchdog",
            "tfs_proxy.cli",
        )
        name = next((known for known in names if known in words), words[:20])
        pss = re.search(r"^Pss:\s+(\d+)", Path(f"/proc/{each}/smaps_rollup").read_text(), re.MULTILINE)
        sizes.setdefault(name, []).append(int(pss[1]) / 1024 if pss else 0.0)
    return sizes


def rest_url(pid: int) -> str:
    """The REST address of a run's model server, from its command line."""
    for each in descendants(pid):
        match = re.search(rb"--rest_api_port=(\d+)", Path(f"/proc/{each}/cmdline").read_bytes())
        if match:
            return f"http://127.0.0.1:{int(match[1])}"
    sys.exit("no model server found")
