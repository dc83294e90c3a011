"""What `embedded.py` measures with: models, requests, processes, wrk and a gRPC client."""

import hashlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from base64 import b64encode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import grpc
import numpy as np

from tfs_proxy.wire.protos import PredictRequest
from tfs_proxy.wire.protos.tensors import to_bytes

ROOT = Path(__file__).resolve().parents[1]

BUILD = """
import sys
from pathlib import Path
import keras, numpy as np, tensorflow as tf
root = Path(sys.argv[1])
def save(name, function, spec):
    module = tf.Module()
    module.run = tf.function(function, input_signature=[spec])
    tf.saved_model.save(module, str(root / name / "1"), signatures=module.run)
save("tiny", lambda x: {"y": 0.5 * x + 2.0}, tf.TensorSpec([None], tf.float32, name="x"))
mean_spec = tf.TensorSpec([None, 224, 224, 3], tf.float32, name="x")
bytes_spec = tf.TensorSpec([None], tf.string, name="x")
save("bytes", lambda x: {"y": tf.strings.length(x)}, bytes_spec)
save("mean", lambda x: {"y": tf.reduce_mean(x, [1, 2, 3])}, mean_spec)
network = keras.applications.ResNet50(weights=None)
dice = np.random.default_rng(0)
for weights in network.weights:
    kind = weights.path.rsplit("/", 1)[-1]
    if kind in {"gamma", "moving_variance"}:
        weights.assign(dice.uniform(0.5, 1.5, weights.shape) * (0.3 if "_3_bn" in weights.path else 1))
    elif kind in {"beta", "moving_mean", "bias"}:
        weights.assign(dice.normal(0, 0.2, weights.shape))
def decode(image):
    pixels = tf.cast(tf.io.decode_jpeg(image, channels=3), tf.float32)
    return tf.ensure_shape(tf.image.resize(pixels, [224, 224]), [224, 224, 3])
def classify(image_bytes):
    spec = tf.TensorSpec([224, 224, 3], tf.float32)
    return {"probabilities": network(tf.map_fn(decode, image_bytes, fn_output_signature=spec))}
archive = keras.export.ExportArchive()
archive.track(network)
jpeg_spec = tf.TensorSpec([None], tf.string, name="image_bytes")
archive.add_endpoint("serve", classify, input_signature=[jpeg_spec])
archive.write_out(str(root / "resnet" / "1"))
picture = np.random.default_rng(0).integers(0, 255, (384, 512, 3), np.uint8)
(root / "image.jpg").write_bytes(tf.io.encode_jpeg(picture, quality=60).numpy())
"""

CACHE = ROOT / ".cache" / "benchmarks" / hashlib.sha256(BUILD.encode()).hexdigest()[:8]
"""One folder for each text of BUILD. ResNet-50's statistics are like trained ones: additions of nothing but
zeros, which fresh ones come to, are left out by TensorFlow if it can, and no trained model has them."""

POST = """
wrk.method = "POST"
wrk.headers["Content-Type"] = "application/json"
local file = io.open(os.getenv("BODY"), "rb")
wrk.body = file:read("*a")
file:close()
"""


def free_port() -> int:
    """A free port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def build() -> Path:
    """The models, built once per machine."""
    if not (CACHE / "image.jpg").exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        subprocess.run([sys.executable, "-c", BUILD, str(CACHE)], check=True, capture_output=True)
    return CACHE


@contextmanager
def running(
    argv: list[str], url: str, variables: Mapping[str, str] | None = None
) -> Iterator[tuple[subprocess.Popen[bytes], float]]:
    """A process that answers at a URL, and how long it took to."""
    began = time.monotonic()
    process = subprocess.Popen(
        argv,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, **(variables or {})},
    )
    try:
        while not answers(url):
            time.sleep(0.01)
        yield process, time.monotonic() - began
    finally:
        process.terminate()
        process.wait(30)


def answers(url: str) -> bool:
    """Whether a model is available there, or another server answers."""
    try:
        with urllib.request.urlopen(url, timeout=5) as reply:
            body = reply.read()
            return b"AVAILABLE" in body or b"predictions" in body
    except OSError:
        return False


def wrk(url: str, body: Path, connections: int, seconds: float) -> float:
    """Requests per second that wrk counts. Raises if one was refused."""
    with tempfile.NamedTemporaryFile("w", suffix=".lua") as script:
        script.write(POST)
        script.flush()
        done = subprocess.run(
            ["wrk", "-t1", f"-c{connections}", f"-d{seconds:.0f}s", "-s", script.name, url],
            check=True,
            capture_output=True,
            text=True,
            env={**os.environ, "BODY": str(body)},
        )
    if "Non-2xx" in done.stdout:
        raise SystemExit(done.stdout)
    return float(done.stdout.split("Requests/sec:")[1].split()[0])


def grpc_rate(address: str, request: bytes, callers: int, seconds: float) -> float:
    """Predict calls per second of a Python client with this many threads on one channel."""
    counts = [0] * callers
    with grpc.insecure_channel(address, [("grpc.max_receive_message_length", -1)]) as channel:
        run = channel.unary_unary("/tensorflow.serving.PredictionService/Predict")
        run(request)
        stop = time.monotonic() + seconds

        def call(at: int) -> None:
            while time.monotonic() < stop:
                run(request)
                counts[at] += 1

        threads = [threading.Thread(target=call, args=(at,)) for at in range(callers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return sum(counts) / seconds


def resident_megabytes(process: "subprocess.Popen[bytes]") -> float:
    """Its resident memory."""
    pages = int(Path(f"/proc/{process.pid}/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def bodies(folder: Path) -> tuple[Path, Path, Path]:
    """The JSON bodies: three numbers, 224 x 224 x 3 numbers, one photograph; in files of these models' names."""
    dice = np.random.default_rng(0)
    image = b64encode((CACHE / "image.jpg").read_bytes()).decode()
    texts = {
        "tiny": {"instances": [1.0, 2.0, 5.0]},
        "mean": {"instances": [dice.random((224, 224, 3)).round(8).tolist()]},
        "resnet": {"instances": [{"b64": image}]},
    }
    for name, document in texts.items():
        (folder / name).write_text(json.dumps(document), encoding="ascii")
    return folder / "tiny", folder / "mean", folder / "resnet"


def cpu_seconds(process: "subprocess.Popen[bytes]") -> float:
    """The time that it has computed."""
    fields = Path(f"/proc/{process.pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def array_request(model: str, shape: tuple[int, ...]) -> bytes:
    """A serialized PredictRequest with one array of floats."""
    return _predict_request(model, np.ones(shape, np.float32))


def photograph_request() -> bytes:
    """A serialized PredictRequest with one photograph."""
    return _predict_request("bytes", np.array([(CACHE / "image.jpg").read_bytes()], object))


def _predict_request(model: str, array: "np.ndarray") -> bytes:
    request = PredictRequest()
    request.model_spec.name = model
    request.inputs["x"].ParseFromString(to_bytes(array))
    return request.SerializeToString()
