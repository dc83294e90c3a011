"""Measures the clients of the model server: each way to send the same request, from one process.

``python benchmarks/upstream.py`` starts the model server (or the one of ``--model-server``) on loopback
addresses. Rows alternate; each cell is the median of its rounds, in requests per second at 1 and at 8 threads
of one worker. The models compute almost nothing, so the rows show the transport.
"""

import argparse
import base64
import json
import platform
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import requests

from tfs_proxy.serving.upstream.binary import BinaryUpstream
from tfs_proxy.serving.upstream.pooled_requests import PooledRequests
from tfs_proxy.serving.upstream.rest import RestUpstream
from tfs_proxy.values.batch import Batch
from tfs_proxy.values.deployment import Instance
from tfs_proxy.values.signature import Target

THREADS = (1, 8)
EXPORT = """
import sys, tensorflow as tf
def save(name, function, spec):
    module = tf.Module()
    module.f = tf.function(function, input_signature=[spec])
    tf.saved_model.save(module, f"{sys.argv[1]}/{name}/1", signatures=module.f)
save("tiny", lambda x: {"y": 0.5 * x + 2.0}, tf.TensorSpec([None], tf.float32, name="x"))
save("f224", lambda x: {"y": x[:, 0, 0, 0]}, tf.TensorSpec([None, 224, 224, 3], tf.float32, name="x"))
save("jpeg", lambda x: {"y": tf.strings.length(x)}, tf.TensorSpec([None], tf.string, name="x"))
save("table", lambda x: {"y": x[:, 0]}, tf.TensorSpec([None, 100], tf.float32, name="x"))
"""
POOLED = "tiny JSON, requests.post through the pool"
MODELS = ("tiny", "f224", "jpeg", "table")

Call = Callable[[], object]


def free_port() -> int:
    """A loopback port that nothing listens on."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        return int(holder.getsockname()[1])


@contextmanager
def model_server(words: list[str], folder: Path) -> Iterator[Instance]:
    """A running model server with the models above."""
    subprocess.run([sys.executable, "-c", EXPORT, str(folder)], check=True, capture_output=True)
    config = folder / "models.config"
    entries = [
        f'config {{ name: "{name}" base_path: "{folder / name}" model_platform: "tensorflow" }}'
        for name in MODELS
    ]
    config.write_text("model_config_list { " + " ".join(entries) + " }")
    instance = Instance(0, free_port(), free_port(), str(folder / "grpc.sock"))
    flags = [f"--port={instance.grpc_port}", f"--rest_api_port={instance.rest_port}"]
    flags += [f"--grpc_socket_path={instance.grpc_socket}", f"--model_config_file={config}"]
    process = subprocess.Popen(
        [*words, *flags, "--grpc_max_threads=64"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        wait_ready(instance)
        yield instance
    finally:
        process.terminate()
        process.wait(30)


def wait_ready(instance: Instance, seconds: float = 60) -> None:
    """Wait until every model is available."""
    deadline = time.monotonic() + seconds
    for name in MODELS:
        while True:
            try:
                url = f"http://127.0.0.1:{instance.rest_port}/v1/models/{name}"
                if b"AVAILABLE" in urllib.request.urlopen(url, timeout=5).read():
                    break
            except OSError:
                pass
            if time.monotonic() > deadline:
                raise SystemExit(f"the model {name} was not ready within {seconds:g} seconds")
            time.sleep(0.05)


def rate(call: Call, threads: int, seconds: float) -> float:
    """Calls per second of so many threads."""
    counts = [0] * threads
    end = time.monotonic() + seconds

    def work(index: int) -> None:
        while time.monotonic() < end:
            call()
            counts[index] += 1

    workers = [threading.Thread(target=work, args=(index,)) for index in range(threads)]
    began = time.monotonic()
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return sum(counts) / (time.monotonic() - began)


def posted(url: str, body: Callable[[], str | bytes]) -> Call:
    """A plain ``requests.post``, as a script of today does it."""

    def call() -> None:
        requests.post(url, data=body(), timeout=60).raise_for_status()

    return call


def rows(instance: Instance, rest: RestUpstream, both: BinaryUpstream) -> Mapping[str, Call]:
    """Every way that is measured, by name."""
    image = np.random.default_rng(1).random((1, 224, 224, 3), np.float32)
    jpeg = np.empty(1, object)
    jpeg[0] = np.random.default_rng(1).bytes(106_000)
    table = np.random.default_rng(1).random((1266, 100), np.float32)
    tiny = np.array([1.0, 2.0, 5.0], np.float32)
    text = b'{"instances": [1.0, 2.0, 5.0]}'

    def url(model: str) -> str:
        return f"http://127.0.0.1:{instance.rest_port}/v1/models/{model}:predict"

    def over_rest(model: str, array: np.ndarray[Any, Any]) -> Call:
        return lambda: rest.predict(Target(model), Batch({"x": array}, len(array))).body

    def over_grpc(model: str, array: np.ndarray[Any, Any]) -> Call:
        target = Target(model)
        signature = both.signature(target)
        return lambda: both.predict(target, Batch({"x": array}, len(array))).outputs(signature)

    def over_grpc_as_json(model: str, array: np.ndarray[Any, Any]) -> Call:
        return lambda: both.predict(Target(model), Batch({"x": array}, len(array))).body

    return {
        "tiny JSON, requests.post": posted(url("tiny"), lambda: text),
        POOLED: posted(url("tiny"), lambda: text),
        "tiny JSON, pooled REST": lambda: rest.predict(Target("tiny"), text).body,
        "tiny array, pooled REST": over_rest("tiny", tiny),
        "tiny array, gRPC": over_grpc("tiny", tiny),
        "tiny array, gRPC, answer as JSON": over_grpc_as_json("tiny", tiny),
        "f224 array, json.dumps(tolist), requests.post": posted(
            url("f224"), lambda: json.dumps({"instances": image.tolist()})
        ),
        "f224 array, pooled REST": over_rest("f224", image),
        "f224 array, gRPC": over_grpc("f224", image),
        "JPEG, base64, requests.post": posted(
            url("jpeg"), lambda: json.dumps({"instances": [{"b64": base64.b64encode(jpeg[0]).decode()}]})
        ),
        "JPEG, pooled REST": over_rest("jpeg", jpeg),
        "JPEG, gRPC": over_grpc("jpeg", jpeg),
        "table of 1266 x 100, pooled REST": over_rest("table", table),
        "table of 1266 x 100, gRPC, answer as JSON": over_grpc_as_json("table", table),
    }


def measure(words: list[str], rounds: int, seconds: float) -> Mapping[str, list[float]]:
    """Medians by row, one for each number of threads."""
    with tempfile.TemporaryDirectory() as folder, model_server(words, Path(folder)) as instance:
        rest, both = RestUpstream([instance], 60), BinaryUpstream([instance], 60)
        pooled = PooledRequests([instance], rest)
        try:
            calls = rows(instance, rest, both)
            rates: dict[tuple[str, int], list[float]] = {}
            for turn in range(rounds + 1):
                for name, call in calls.items():
                    for threads in THREADS:
                        with pooled.installed() if name == POOLED else nullcontext():
                            measured = rate(call, threads, seconds if turn else seconds / 4)
                        if turn:
                            rates.setdefault((name, threads), []).append(measured)
            return {name: [statistics.median(rates[name, threads]) for threads in THREADS] for name in calls}
        finally:
            both.close()
            rest.close()


def main() -> None:
    """Print the table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model-server", default="", help="program; the embedded one by default")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1.0, help="of each cell in each round")
    given = parser.parse_args()
    words = [given.model_server] if given.model_server else [sys.executable, "-m", "tfs_proxy.embedded"]
    medians = measure(words, given.rounds, given.seconds)
    server = given.model_server or "embedded"
    print(f"{platform.machine()}, Python {platform.python_version()}, grpcio {version('grpcio')}, {server}\n")
    print("| requests per second | " + " | ".join(f"{threads} threads" for threads in THREADS) + " |")
    print("|---|" + "--:|" * len(THREADS))
    for name, row in medians.items():
        print(f"| {name} | " + " | ".join(f"{value:,.0f}" for value in row) + " |")


if __name__ == "__main__":
    main()
