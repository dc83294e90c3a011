"""Compares the Open Inference Protocol with TensorFlow Serving's, through one stack, in alternating runs.

``make bench-open-inference`` runs it. Tensors of 602 KB are sent by Triton's perf_analyzer, which speaks all
three ways to send them; JSON by wrk. A shared machine is noisy: each cell is the median of its rounds, and only
the ratios to the first row of a group are meaningful. It prints the tables in Markdown.
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
import perf_analyzer
import stack
from load import Request, by_wrk

import tfs_proxy

IMAGE = (1, 224, 224, 3)
JSON = {"Content-Type": "application/json"}
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


def tensors(url: str, grpc_port: int, seconds: float, folder: Path) -> Group:
    """The same tensor in three protocols."""
    http, grpc = url.removeprefix("http://"), f"127.0.0.1:{grpc_port}"
    shapes = (f"image:{','.join(map(str, IMAGE))}",)

    def way(name: str, protocol: str, address: str, service: str = "triton") -> Way:
        load = perf_analyzer.Load("f224", shapes, protocol, address, service)

        def measured(connections: int) -> tuple[float, float, float]:
            report = perf_analyzer.run(load, connections, seconds / 3, folder)
            return report.rate, report.p50, report.p99

        return Way(name, measured)

    return Group(
        "602 KB tensor",
        (1, 2, 8),
        [
            way("v2 gRPC ModelInfer", "grpc", grpc),
            way("v2 REST, binary", "http", http),
            way("gRPC Predict", "grpc", grpc, "tfserving"),
        ],
    )


def documents(
    work: str, url: str, model: str, array: np.ndarray, connections: Sequence[int], seconds: int, folder: Path
) -> Group:
    """The same numbers as instances of `:predict` and as one tensor of the protocol, flat and nested."""
    name = {"f224": "image", "tiny": "x"}[model]

    def way(title: str, path: str, document: object) -> Way:
        request = Request(url + path, json.dumps(document).encode(), JSON)

        def measured(count: int) -> tuple[float, float, float]:
            report = by_wrk(request, count, seconds, folder)
            return report.rate, report.p50, report.p99

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


def report_of(url: str, grpc_port: int, folder: Path) -> Iterator[str]:
    """What perf_analyzer itself prints of either protocol, at 1 connection."""
    for protocol, address in (("http", url.removeprefix("http://")), ("grpc", f"127.0.0.1:{grpc_port}")):
        load = perf_analyzer.Load("f224", ("image:1,224,224,3",), protocol, address)
        yield perf_analyzer.run(load, 1, 1.0, folder).text


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=3)
    parser.add_argument("--model-server", default="auto")
    parser.add_argument("--only", default="", help="the groups whose names contain this")
    arguments = parser.parse_args()
    for program, hint in (
        (shutil.which("wrk"), "apt-get install wrk"),
        (perf_analyzer.ENVIRONMENT.exists(), "scripts/install-judge perf"),
    ):
        if not program:
            sys.exit(f"something is not installed: {hint}")
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
            for text in report_of(running.url, grpc_port, folder) if not arguments.only else ():
                print(f"\n{text}")


if __name__ == "__main__":
    main()
