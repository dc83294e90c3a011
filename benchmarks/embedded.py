"""Measures the embedded model server: ``python benchmarks/embedded.py [SECONDS] [--against CHECKOUT]``.

Needs wrk on PATH. Each figure is printed with one of the same run that does not depend on the server: the
same model called in process, or a fixed answer of the same HTTP server. With ``--against`` it is printed
with that of another checkout's server, run by the same Python.
"""

import argparse
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from embedded_load import (
    CACHE,
    ROOT,
    array_request,
    bodies,
    build,
    cpu_seconds,
    free_port,
    grpc_rate,
    photograph_request,
    resident_megabytes,
    running,
    wrk,
)

CONNECTIONS = (1, 8, 64)
ROUNDS = 3
ROUNDS_AGAINST = 5
RESNET_SECONDS = 10.0
"""Calls that the end cuts off are not counted; so long they are few among the others."""

IN_PROCESS = """
import json, sys, threading, time
from pathlib import Path
import numpy as np
from tfs_proxy.embedded.flags import ModelServerFlags
from tfs_proxy.embedded.tensorflow.session import SessionBackend, session_config
root, model = Path(sys.argv[1]), sys.argv[2]
intra, callers, seconds = int(sys.argv[3]), int(sys.argv[4]), float(sys.argv[5])
config = session_config(ModelServerFlags(tensorflow_intra_op_parallelism=intra))
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


def in_process(model: str, *, intra: int, callers: int, seconds: float) -> float:
    """Calls per second of a model without any server: a plain session's."""
    argv = [sys.executable, "-c", IN_PROCESS, str(CACHE), model, str(intra), str(callers), str(seconds)]
    return float(subprocess.run(argv, check=True, capture_output=True, text=True).stdout)


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
    print("| work | per second | CPU ms a request | compared with | ratio |\n|---|---|---|---|---|")
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
        table.row(
            f"{what} over gRPC, 8 callers",
            partial(grpc_rate, address, array_request(model, shape), 8, table.seconds),
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


@dataclass(frozen=True)
class Side:
    """One of two servers that take turns."""

    process: "subprocess.Popen[bytes]"
    url: str
    address: str

    def measure(self, load: Callable[["Side"], float], seconds: float) -> tuple[float, float]:
        """Requests per second, and the CPU milliseconds of each."""
        before = cpu_seconds(self.process)
        rate = load(self)
        return rate, (cpu_seconds(self.process) - before) / (rate * seconds) * 1000


def measure_against(checkout: Path, seconds: float, folder: Path, only: str) -> None:
    """Start this server and the other one, and print the ratios of each round's rates and costs."""
    names = ("tiny", "bytes", "mean")
    entries = [f'config {{ name: "{name}" base_path: "{CACHE / name}" }}' for name in names]
    config = folder / "models.config"
    config.write_text(f"model_config_list {{ {' '.join(entries)} }}", encoding="utf-8")
    with ExitStack() as opened:
        sides, starts = [], []
        for root in (checkout, ROOT):
            side, ready_seconds = opened.enter_context(serving_from(root, config))
            sides.append(side)
            starts.append(ready_seconds)
        print(f"\nReady after {starts[1]:.2f} s, the other one after {starts[0]:.2f} s.\n")
        print("| work | per second | the other one | ratio | CPU ms a request | the other one | ratio |")
        print("|---|---|---|---|---|---|---|")
        for what, load in loads_of_both(bodies(folder), seconds):
            if only in what:
                compare(what, sides, load, seconds)


@contextmanager
def serving_from(root: Path, config: Path) -> Iterator[tuple[Side, float]]:
    """The server of a checkout, and how long it took to be ready."""
    rest, rpc = free_port(), free_port()
    argv = [sys.executable, "-m", "tfs_proxy.embedded", f"--port={rpc}", f"--rest_api_port={rest}"]
    url = f"http://127.0.0.1:{rest}/v1/models"
    variables = {"PYTHONPATH": str(root / "src")}
    with running([*argv, f"--model_config_file={config}"], f"{url}/mean", variables) as (process, ready):
        yield Side(process, url, f"127.0.0.1:{rpc}"), ready


def loads_of_both(sent: tuple[Path, Path, Path], seconds: float) -> list[tuple[str, Callable[[Side], float]]]:
    """The rows of the comparison: a load on one side gives requests per second."""

    def rest(model: str, body: Path, count: int) -> Callable[[Side], float]:
        return lambda side: wrk(f"{side.url}/{model}:predict", body, count, seconds)

    def rpc(request: bytes, callers: int) -> Callable[[Side], float]:
        return lambda side: grpc_rate(side.address, request, callers, seconds)

    tiny, mean, photograph = sent
    return [
        *((f"tiny JSON, {count} connections", rest("tiny", tiny, count)) for count in CONNECTIONS),
        *((f"JPEG in base64, {count} connections", rest("bytes", photograph, count)) for count in (1, 8)),
        *((f"224x224x3 JSON (1.9 MB), {count} connections", rest("mean", mean, count)) for count in (1, 8)),
        ("tiny over gRPC, 8 callers", rpc(array_request("tiny", (3,)), 8)),
        ("JPEG over gRPC, 8 callers", rpc(photograph_request(), 8)),
        ("224x224x3 floats over gRPC (602 KB), 8 callers", rpc(array_request("mean", (1, 224, 224, 3)), 8)),
    ]


def compare(what: str, sides: list[Side], load: Callable[[Side], float], seconds: float) -> None:
    """Measure both sides in turns, and print the line: medians, and of the ratios that of each round."""
    rounds = [[side.measure(load, seconds) for side in sides] for _ in range(ROUNDS_AGAINST)]
    columns = []
    for at in (0, 1):
        other, ours = (statistics.median(pair[side][at] for pair in rounds) for side in (0, 1))
        ratio = statistics.median(pair[1][at] / pair[0][at] for pair in rounds)
        columns.append(f"{ours:,.4g} | {other:,.4g} | {ratio:.2f}")
    print(f"| {what} | {' | '.join(columns)} |", flush=True)


def main() -> int:
    """Build, measure, print."""
    parser = argparse.ArgumentParser(description="Measure the embedded model server.")
    parser.add_argument("seconds", nargs="?", type=float, default=3.0, help="of each measurement")
    parser.add_argument(
        "--against", type=Path, help="another checkout, whose server takes turns with this one"
    )
    parser.add_argument(
        "--only", default="", help="with --against: rows that have this in their first column"
    )
    arguments = parser.parse_args()
    if shutil.which("wrk") is None:
        print("wrk is not on PATH: nothing is measured.", file=sys.stderr)
        return 1
    build()
    with tempfile.TemporaryDirectory() as folder:
        if arguments.against:
            measure_against(arguments.against, arguments.seconds, Path(folder), arguments.only)
        else:
            measure_server(arguments.seconds, Path(folder))
    return 0


if __name__ == "__main__":
    sys.exit(main())
