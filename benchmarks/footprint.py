"""Measures what the stack costs: images per second on ResNet-50, seconds to start, megabytes per worker.

`serving.py` prints these after its table, each beside a figure of the same run without the stack.
"""

import json
import shutil
import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import embedded
from stack import SCRIPT, Running, free_port, memory, running, serve

TINY = b'{"instances": [1.0, 2.0, 5.0]}'
REQUESTS = 10_000
ROUNDS = 3

Load = Callable[[str, bytes, dict[str, str], int, int], float]
"""Requests per second at a URL: body, headers, connections, seconds."""


def with_script(model: Path, folder: Path) -> Path:
    """A model folder of one model and the classic script."""
    shutil.copytree(model, folder / model.name)
    (folder / "code").mkdir()
    (folder / "code" / "inference.py").write_text(SCRIPT)
    return folder


def resnet(load: Load, model_server: str, seconds: int) -> str:
    """ResNet-50 on JPEG files through the classic script, as a batch job sends them, beside in-process calls."""
    cache = embedded.build()
    photo = (cache / "image.jpg").read_bytes()
    with tempfile.TemporaryDirectory() as name:
        model = with_script(cache / "resnet", Path(name) / "model")
        batch = {"SAGEMAKER_BATCH": "true", "SAGEMAKER_TFS_DEFAULT_MODEL_NAME": "resnet"}
        with serve(model, model_server, batch) as stack:
            url, headers = f"{stack.url}/invocations", {"Content-Type": "image/jpeg"}
            load(url, photo, headers, 8, 1)
            ours, alone = [], []
            for _ in range(ROUNDS):
                alone.append(embedded.in_process("resnet", intra=1, callers=8, seconds=float(seconds)))
                ours.append(load(url, photo, headers, 8, seconds))
    ratio = statistics.median(one / other for one, other in zip(ours, alone, strict=True))
    return (
        f"ResNet-50 on JPEG through the classic script, 8 connections, SAGEMAKER_BATCH=true: "
        f"{statistics.median(ours):.1f} images/s, {ratio:.2f} of {statistics.median(alone):.1f} in process."
    )


def start(tiny: Path, model_server: str) -> str:
    """Seconds until /ping says 200, beside the model server alone on the same model, in turns."""
    ours, alone = [], []
    for _ in range(ROUNDS):
        with serve(tiny, model_server) as stack:
            ours.append(stack.start_seconds)
        port = free_port()
        words = [sys.executable, "-m", "tfs_proxy.embedded", f"--rest_api_port={port}", "--port=0"]
        words += ["--model_name=tiny", f"--model_base_path={tiny / 'tiny'}"]
        url = f"http://127.0.0.1:{port}"
        with running(words, url, "/v1/models/tiny/metadata", {}) as server:
            alone.append(server.start_seconds)
    more = statistics.median(one - other for one, other in zip(ours, alone, strict=True))
    return (
        f"Start to 200 on /ping, tiny model and script: {statistics.median(ours):.2f} s, {more:+.2f} s beside the "
        f"embedded model server alone ({statistics.median(alone):.2f} s to its first 200)."
    )


def worker_memory(load: Load, tiny: Path, model_server: str) -> str:
    """PSS of each worker after 10,000 requests through the script, and after as many again."""
    with serve(tiny, model_server) as stack:
        first, second = (after_requests(load, stack) for _ in range(2))
    return (
        f"PSS of the gunicorn master and its workers after {REQUESTS} requests at 64 connections: "
        f"{json.dumps(first)} MB, after {REQUESTS} more {json.dumps(second)} MB."
    )


def after_requests(load: Load, stack: Running) -> list[int]:
    """Send about `REQUESTS` requests; the sizes then, in MB."""
    sent = 0.0
    while sent < REQUESTS:
        sent += load(f"{stack.url}/invocations", TINY, {"Content-Type": "application/json"}, 64, 1)
    return [round(size) for size in memory(stack.pid)["gunicorn"]]


def lines(load: Load, tiny: Path, model_server: str, seconds: int) -> list[str]:
    """All of it; ``tiny`` is a model folder with a model of that name."""
    with tempfile.TemporaryDirectory() as name:
        scripted = with_script(tiny / "tiny", Path(name) / "model")
        return [
            start(scripted, model_server),
            worker_memory(load, scripted, model_server),
            resnet(load, model_server, seconds),
        ]
