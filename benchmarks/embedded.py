"""Measures the embedded model server: ``python benchmarks/embedded.py [SECONDS]``.

Needs wrk on PATH. Each figure is printed beside one of the same run that does not depend on the server: the
same model called in process, or a fixed answer of the same HTTP server.
"""

import hashlib
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import grpc
import numpy as np

from tfs_proxy.protos import PredictRequest
from tfs_proxy.protos.tensors import to_bytes

ROOT = Path(__file__).resolve().parents[1]
CONNECTIONS = (1, 8, 64)
ROUNDS = 3
RESNET_SECONDS = 10.0
"""Calls that the end cuts off are not counted; so long they are few beside the others."""

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

IN_PROCESS = """
import json, sys, threading, time
from pathlib import Path
import numpy as np
from tfs_proxy.embedded.flags import Flags
from tfs_proxy.embedded.tensorflow.session import SessionBackend, session_config
root, model = Path(sys.argv[1]), sys.argv[2]
intra, callers, seconds = int(sys.argv[3]), int(sys.argv[4]), float(sys.argv[5])
config = session_config(Flags(tensorflow_intra_op_parallelism=intra))
backend = SessionBackend(root / model / "1", ["serve"], config)
signature = backend.signatures["serving_default"]
inputs, outputs = ([tensor.name for tensor in ends.values()] for ends in (signature.inputs, signature.outputs))
run = backend.prepare(inputs, outputs)
arrays = {
    "tiny": [np.ones(3, np.float32)],
    "mean": [np.ones((1, 224, 224, 3), np.float32)],
    "resnet": [np.array([(root / "image.jpg").read_bytes()], object)],
}[model]
for _ in range(3):
    run(arrays)
counts = [0] * callers
stop = time.monotonic() + seconds
def call(at):
    run(arrays)
    while time.monotonic() < stop:
        counts[at] += 1
        run(arrays)
threads = [threading.Thread(target=call, args=(at,)) for at in range(callers)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
print(sum(counts) / seconds)
"""

BARE = """
import sys, uvicorn
BODY = b'{"predictions": [2.5, 3.0, 4.5]}'
HEAD = [(b"content-type", b"application/json"), (b"content-length", str(len(BODY)).encode())]
async def app(scope, receive, send):
    while (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 200, "headers": HEAD})
    await send({"type": "http.response.body", "body": BODY})
uvicorn.run(app, port=int(sys.argv[1]), http="httptools", loop="uvloop", lifespan="off", ws="none",
            access_log=False, log_level="warning", server_header=False, proxy_headers=False)
"""

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


def in_process(model: str, *, intra: int, callers: int, seconds: float) -> float:
    """Calls per second of a model without any server: a plain session's."""
    argv = [sys.executable, "-c", IN_PROCESS, str(CACHE), model, str(intra), str(callers), str(seconds)]
    return float(subprocess.run(argv, check=True, capture_output=True, text=True).stdout)


@contextmanager
def running(argv: list[str], url: str) -> Iterator[tuple[subprocess.Popen[bytes], float]]:
    """A process that answers at a URL, and how long it took to."""
    began = time.monotonic()
    process = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
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
    """The JSON bodies: three numbers, 224 x 224 x 3 numbers, one photograph."""
    from base64 import b64encode

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


@dataclass(frozen=True)
class Table:
    """Lines about one server: medians of runs that alternate, so that a busy machine is busy for both."""

    server: "subprocess.Popen[bytes]"
    seconds: float

    def row(self, what: str, measure: Callable[[], float], beside: str, other: Callable[[], float]) -> None:
        """Measure, and print the line."""
        figures, others, costs = [], [], []
        for _ in range(ROUNDS):
            others.append(other())
            before = cpu_seconds(self.server)
            figures.append(measure())
            costs.append((cpu_seconds(self.server) - before) / (figures[-1] * self.seconds))
        ratio = statistics.median(one / two for one, two in zip(figures, others, strict=True))
        figure, fixed = statistics.median(figures), statistics.median(others)
        cost = statistics.median(costs) * 1000
        digits = 0 if figure > 100 else 1
        print(
            f"| {what} | {figure:,.{digits}f} | {cost:.3g} | {beside} {fixed:,.{digits}f} | {ratio:.2f} |",
            flush=True,
        )


def measure_server(seconds: float, folder: Path) -> None:
    """Start the server on all models, and print the table."""
    config = folder / "models.config"
    names = ("tiny", "mean", "resnet")
    entries = [f'config {{ name: "{name}" base_path: "{CACHE / name}" }}' for name in names]
    config.write_text(f"model_config_list {{ {' '.join(entries)} }}", encoding="utf-8")
    rest, rpc, bare = free_port(), free_port(), free_port()
    embedded = [sys.executable, "-m", "tfs_proxy.embedded", f"--port={rpc}", f"--rest_api_port={rest}"]
    url = f"http://127.0.0.1:{rest}/v1/models"
    only = [*embedded, "--model_name=tiny", f"--model_base_path={CACHE / 'tiny'}"]
    with running(only, f"{url}/tiny") as (alone, ready):
        print(f"\nReady after {ready:.2f} s, {resident_megabytes(alone):.0f} MB with the tiny model.\n")
    print("| work | per second | CPU ms a request | beside | ratio |\n|---|---|---|---|---|")
    sent = bodies(folder)
    with (
        running([sys.executable, "-c", BARE, str(bare)], f"http://127.0.0.1:{bare}/"),
        running([*embedded, f"--model_config_file={config}"], f"{url}/resnet") as (server, _),
    ):
        table = Table(server, seconds)
        measure_rest(table, url, f"http://127.0.0.1:{bare}/", sent)
        measure_grpc(table, f"127.0.0.1:{rpc}")
        measure_resnet(Table(server, max(seconds, RESNET_SECONDS)), f"{url}/resnet:predict", sent[2], 1, 0)
    intra_one = [*embedded, f"--model_config_file={config}", "--tensorflow_intra_op_parallelism=1"]
    with running(intra_one, f"{url}/resnet") as (server, _):
        measure_resnet(Table(server, max(seconds, RESNET_SECONDS)), f"{url}/resnet:predict", sent[2], 8, 1)


def measure_rest(table: Table, url: str, bare: str, sent: tuple[Path, Path, Path]) -> None:
    """The rows of the REST side."""
    tiny, mean, _ = sent
    for count in CONNECTIONS:
        table.row(
            f"tiny JSON, {count} connections",
            partial(wrk, f"{url}/tiny:predict", tiny, count, table.seconds),
            "fixed answer",
            partial(wrk, bare, tiny, count, table.seconds),
        )
    table.row(
        "224x224x3 JSON (1.9 MB), 1 connection",
        partial(wrk, f"{url}/mean:predict", mean, 1, table.seconds),
        "fixed answer",
        partial(wrk, bare, mean, 1, table.seconds),
    )


def measure_grpc(table: Table, address: str) -> None:
    """The rows of the gRPC side."""
    for model, what, shape in (
        ("tiny", "tiny", (3,)),
        ("mean", "224x224x3 floats (602 KB)", (1, 224, 224, 3)),
    ):
        request = PredictRequest()
        request.model_spec.name = model
        request.inputs["x"].ParseFromString(to_bytes(np.ones(shape, np.float32)))
        table.row(
            f"{what} over gRPC, 8 callers",
            partial(grpc_rate, address, request.SerializeToString(), 8, table.seconds),
            "in process, 1 caller,",
            partial(in_process, model, intra=0, callers=1, seconds=table.seconds),
        )


def measure_resnet(table: Table, url: str, body: Path, count: int, intra: int) -> None:
    """A model that is all computing, with the same settings in the server and in process."""
    wrk(url, body, count, 2)
    settings = "one thread a call" if intra else "default threads"
    table.row(
        f"ResNet-50 JPEG over REST, {count} connections, {settings}",
        partial(wrk, url, body, count, table.seconds),
        "in process",
        partial(in_process, "resnet", intra=intra, callers=count, seconds=table.seconds),
    )


def main() -> int:
    """Build, measure, print."""
    if shutil.which("wrk") is None:
        print("wrk is not on PATH: nothing is measured.", file=sys.stderr)
        return 1
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 3.0
    build()
    with tempfile.TemporaryDirectory() as folder:
        measure_server(seconds, Path(folder))
    return 0


if __name__ == "__main__":
    sys.exit(main())
