"""Compares the Open Inference Protocol with TensorFlow Serving's, through one stack, in alternating runs.

``make bench-open-inference`` runs it. Tensors of 602 KB are sent by wrk over REST and by grpcio; JSON by wrk.
A shared machine is noisy: each cell is the median of its rounds, and only the ratios to the first row of a
group are meaningful. It prints the tables in Markdown.
"""

import argparse
import json
import os
import platform
import shutil
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import stack
from load import PREDICT, Report, Request, by_grpc, by_wrk

import tfs_proxy
from tfs_proxy.wire.header_names import INFERENCE_HEADER_LENGTH
from tfs_proxy.wire.protos import ModelSpec, PredictRequest
from tfs_proxy.wire.protos.open_inference import ModelInferRequest
from tfs_proxy.wire.protos.tensors import to_bytes

IMAGE = (1, 224, 224, 3)
JSON = {"Content-Type": "application/json"}
INFER = "/inference.GRPCInferenceService/ModelInfer"
START_SECONDS = 120.0


@dataclass
class Way:
    """One way to do a group's work: the load at so many connections, and its results by connections."""

    name: str
    load: Callable[[int], tuple[float, float, float]]
    measured: dict[int, list[tuple[float, float, float]]] = field(default_factory=dict)

    def median(self, connections: int) -> tuple[float, float, float]:
        """Requests per second, p50 and p99 in ms."""
        columns = zip(*self.measured[connections], strict=True)
        rate, p50, p99 = (statistics.median(column) for column in columns)
        return rate, p50, p99


@dataclass
class Group:
    """The ways to do the same work; the first is what the others are compared with."""

    work: str
    connections: Sequence[int]
    ways: Sequence[Way]

    def lines(self) -> Iterator[str]:
        """The rows of the table."""
        for connections in self.connections:
            base = self.ways[0].median(connections)[0]
            for way in self.ways:
                rate, p50, p99 = way.median(connections)
                yield (
                    f"| {self.work} | {way.name} | {connections} | {rate:.0f} | {rate / base:.2f} "
                    f"| {p50:.2f} | {p99:.2f} |"
                )


def tensors(url: str, grpc_port: int, seconds: int, folder: Path) -> Group:
    """The same tensor in three protocols."""
    array = np.random.default_rng(0).random(IMAGE, np.float32)
    tensor = {"name": "image", "datatype": "FP32", "shape": IMAGE}
    described = {
        "inputs": [{**tensor, "parameters": {"binary_data_size": array.nbytes}}],
        "parameters": {"binary_data_output": True},
    }
    document = json.dumps(described).encode()
    headers = {"Content-Type": "application/octet-stream", INFERENCE_HEADER_LENGTH: str(len(document))}
    binary = Request(f"{url}/v2/models/f224/infer", document + array.tobytes(), headers)

    def by_call(name: str, method: str, message: bytes) -> Way:
        file = folder / name
        file.write_bytes(message)
        return Way(
            name, lambda count: _figures(by_grpc(f"127.0.0.1:{grpc_port}", file, count, seconds, method))
        )

    predict = PredictRequest(model_spec=ModelSpec(name="f224"))
    predict.inputs["image"].ParseFromString(to_bytes(array))
    inference = ModelInferRequest(model_name="f224", inputs=[tensor], raw_input_contents=[array.tobytes()])
    return Group(
        "602 KB tensor",
        (2, 8),
        [
            by_call("v2 gRPC ModelInfer", INFER, inference.SerializeToString()),
            Way("v2 REST, binary", lambda count: _figures(by_wrk(binary, count, seconds, folder))),
            by_call("gRPC Predict", PREDICT, predict.SerializeToString()),
        ],
    )


def _figures(report: Report) -> tuple[float, float, float]:
    if report.failed:
        sys.exit(f"{report.failed} requests failed")
    return report.rate, report.p50, report.p99


def documents(
    work: str, url: str, model: str, array: np.ndarray, connections: Sequence[int], seconds: int, folder: Path
) -> Group:
    """The same numbers as instances of `:predict` and as one tensor of the protocol, flat and nested."""
    name = {"f224": "image", "tiny": "x"}[model]

    def way(title: str, path: str, document: object) -> Way:
        request = Request(url + path, json.dumps(document).encode(), JSON)

        def measured(count: int) -> tuple[float, float, float]:
            return _figures(by_wrk(request, count, seconds, folder))

        return Way(title, measured)

    def tensor(data: object) -> object:
        described = {"name": name, "shape": array.shape, "datatype": "FP32", "data": data}
        return {"inputs": [described]}

    numbers = array.round(6).astype(float)
    infer = f"/v2/models/{model}/infer"
    ways = [
        way(":predict", f"/v1/models/{model}:predict", {"instances": numbers.tolist()}),
        way("v2 infer, flat", infer, tensor(numbers.ravel().tolist())),
        way("v2 infer, nested", infer, tensor(numbers.tolist())),
    ]
    return Group(work, connections, ways[:2] if array.ndim == 1 else ways)


def measure(groups: Sequence[Group], rounds: int) -> None:
    """Let the ways of each group take turns, after a round that does not count."""
    for turn in range(rounds + 1):
        for group in groups:
            for connections in group.connections:
                for way in group.ways:
                    result = way.load(connections)
                    if turn:
                        way.measured.setdefault(connections, []).append(result)
        print(f"round {turn} of {rounds}", file=sys.stderr)


def wait_for_port(port: int) -> None:
    """Return when something listens on ``port``; ends the process if nothing ever does."""
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end:
        with socket.socket() as client:
            if client.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    sys.exit(f"nothing listens for gRPC on {port}")


def groups_of(url: str, grpc_port: int, seconds: int, folder: Path) -> Iterator[Group]:
    """All that is measured."""
    random = np.random.default_rng(0)
    yield tensors(url, grpc_port, seconds, folder)
    image = random.random(IMAGE, np.float32)
    yield documents("JSON of 150,528 numbers", url, "f224", image, (1, 8), seconds, folder)
    tiny = np.array([1, 2, 5], np.float32)
    yield documents("tiny JSON", url, "tiny", tiny, (1, 8, 64), seconds, folder)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=3)
    parser.add_argument("--model-server", default="auto")
    parser.add_argument("--only", default="", help="the groups whose names contain this")
    arguments = parser.parse_args()
    if not shutil.which("wrk"):
        sys.exit("something is not installed: apt-get install wrk")
    with tempfile.TemporaryDirectory() as name:
        folder, grpc_port = Path(name), stack.free_port()
        models = stack.export_models(folder / "models")
        env = {"TFS_PROXY_GRPC_PORT": str(grpc_port)}
        with stack.serve(models, arguments.model_server, env) as running:
            wait_for_port(grpc_port)
            everything = groups_of(running.url, grpc_port, arguments.seconds, folder)
            groups = [group for group in everything if arguments.only in group.work]
            measure(groups, arguments.rounds)
            print(f"{platform.machine()}, {os.cpu_count()} cores, tfs_proxy {tfs_proxy.__version__}\n")
            print(
                "| work | way | connections | req/s | ratio | p50 ms | p99 ms |\n|---|---|---|---|---|---|---|"
            )
            for group in groups:
                print("\n".join(group.lines()))


if __name__ == "__main__":
    main()
