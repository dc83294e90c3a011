"""Compares an invoke in multi-model mode with the same model served alone, in alternating runs.

`make bench-multi-model` runs it after `multi_model.py`. All stacks run all the time, one worker each where a
script decides (a model has one by default), and take turns under the same load.
"""

import argparse
import json
import statistics
import tempfile
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import stack
from load import TINY, Request, by_wrk
from multi_model import MANY
from rows import Side

CONNECTIONS = (1, 8, 64)
MODEL = "tiny"
JSON, CSV = ({"Content-Type": kind} for kind in ("application/json", "text/csv"))
ROW = b"1.0\n2.0\n5.0\n"
ONE_WORKER = {"SAGEMAKER_GUNICORN_WORKERS": "1"}
PARTS = ("nginx", "workers")


@dataclass
class Way:
    """One way to serve the model of a group: its stack, its requests, and their results by connections."""

    name: str
    request: Request
    pid: int
    measured: dict[int, Side] = field(default_factory=dict)

    def rate(self, connections: int) -> float:
        """Requests per second, the median of the rounds."""
        return statistics.median(self.measured[connections].rates)

    def milliseconds(self, connections: int) -> float:
        """CPU time of nginx and workers per request, the median of the rounds."""
        costs = self.measured[connections].costs
        return statistics.median(sum(cost.get(part, 0.0) for part in PARTS) for cost in costs)

    def side(self, folder: Path) -> Side:
        """The load and its results, none yet."""
        return Side(
            self.name, lambda count, seconds: by_wrk(self.request, count, seconds, folder), (self.pid,)
        )


def post(url: str, body: object, seconds: float = 300.0) -> None:
    """Send a JSON document, which has to be answered with 200."""
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=seconds):
        pass


def groups(running: ExitStack, folder: Path, model_server: str) -> Iterator[list[Way]]:
    """The ways to serve each kind of model; the first of each group is that alone."""
    plain = stack.only(stack.export_models(folder / "all") / MODEL, folder / "plain")
    scripted = stack.with_script(plain, folder / "scripted")
    many = running.enter_context(stack.serve(None, model_server, MANY))
    alone = running.enter_context(stack.serve(plain, model_server))
    alone_scripted = running.enter_context(stack.serve(scripted, model_server, ONE_WORKER))
    for name, archive in (("plain", plain), ("scripted", scripted)):
        post(f"{many.url}/models", {"model_name": name, "url": str(archive)})

    def way(name: str, served: stack.Running, path: str, body: bytes, headers: dict[str, str]) -> Way:
        return Way(name, Request(f"{served.url}{path}", body, headers), served.pid)

    for work, body, headers in (("tiny JSON, fast path", TINY, JSON), ("tiny CSV, common workers", ROW, CSV)):
        yield [
            way(f"{work}: alone", alone, "/invocations", body, headers),
            way(f"{work}: among many", many, "/models/plain/invoke", body, headers),
        ]
    work = "tiny JSON, classic script"
    yield [
        way(f"{work}: alone", alone_scripted, "/invocations", TINY, JSON),
        way(f"{work}: among many", many, "/models/scripted/invoke", TINY, JSON),
    ]


def take_turns(ways: Sequence[Way], connections: int, rounds: int, seconds: int, folder: Path) -> None:
    """Measure all ways of a group, one after the other, after a round that does not count."""
    for turn in range(rounds + 1):
        for way in ways:
            into = way.measured.setdefault(connections, way.side(folder)) if turn else way.side(folder)
            into.measure(connections, seconds)


def lines(ways: Sequence[Way], connections: int) -> Iterator[str]:
    """A group's results in Markdown, with the ratios to the model alone."""
    alone = ways[0]
    for way in ways:
        cost, rate = way.milliseconds(connections), way.rate(connections)
        yield (
            f"| {way.name} | {connections} | {rate:.0f} | {rate / alone.rate(connections):.2f} "
            f"| {cost:.4f} | {cost / alone.milliseconds(connections):.2f} |"
        )


def main() -> None:
    """Start all stacks, measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=2)
    parser.add_argument("--model-server", default="embedded")
    parser.add_argument("--only", default="", help="the groups whose names contain this")
    arguments = parser.parse_args()
    print("| work | connections | req/s | ratio | nginx and workers, CPU ms/request | ratio |")
    print("|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as name, ExitStack() as running:
        folder = Path(name)
        for ways in groups(running, folder, arguments.model_server):
            for connections in CONNECTIONS if arguments.only in ways[0].name else ():
                take_turns(ways, connections, arguments.rounds, arguments.seconds, folder)
                print("\n".join(lines(ways, connections)), flush=True)


if __name__ == "__main__":
    main()
