"""Measures what a Python user would take instead: the same SavedModels in LitServe and BentoML, each by its defaults.

``make bench`` runs it. The servers take turns, and each runs alone: from its start to the first right answer, under
load, until its memory is read. ``--write`` writes the table into the pages, and draws the picture anew. The others are
installed from benchmarks/peers/ into build/peers/; one that can't be installed is left out, and nothing is written.
"""

import argparse
import json
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import report
import stack
from load import JSON, TINY, Report, Request, by_wrk
from picture import draw
from rows import Bodies

import tfs_proxy
from processes import busy_cores, proportional_megabytes

ROOT = Path(__file__).resolve().parents[1]
PAGES = (ROOT / "benchmarks" / "README.md", ROOT / "docs" / "explained" / "benchmarks.md")
APPS = ROOT / "benchmarks" / "peers"
PEERS = ("litserve", "bentoml")
CONNECTIONS = (1, 8, 64)
RIGHT = [2.5, 3.0, 4.5]
BOUNDARY = "end-of-this-part"
UPLOAD = (
    f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="image"; filename="image.jpg"\r\n'
    "Content-Type: image/jpeg\r\n\r\n"
).encode()


@dataclass(frozen=True)
class Server:
    """A server by its defaults: the command and environment for a model and a port, and its paths."""

    name: str
    words: Callable[[Path, int], list[str]]
    environment: Callable[[Path], Mapping[str, str]]
    ready: str
    tiny: str
    photo: str
    uploads: bool
    """Pictures are uploads of a form, as its documentation has them."""

    def photo_request(self, url: str, photo: bytes) -> Request:
        """A picture."""
        if not self.uploads:
            return Request(f"{url}{self.photo}", photo, {"Content-Type": "image/jpeg"})
        body = UPLOAD + photo + f"\r\n--{BOUNDARY}--\r\n".encode()
        return Request(
            f"{url}{self.photo}", body, {"Content-Type": f"multipart/form-data; boundary={BOUNDARY}"}
        )


@dataclass
class Measured:
    """What the rounds of one server have said."""

    server: Server
    tiny: dict[int, list[Report]] = field(default_factory=lambda: {count: [] for count in CONNECTIONS})
    photos: list[Report] = field(default_factory=list)
    starts: list[float] = field(default_factory=list)
    megabytes: list[float] = field(default_factory=list)

    def round(self, models: Path, photo: bytes, seconds: int, folder: Path) -> None:
        """Serve the tiny model, then the one of pictures."""
        server, port = self.server, stack.free_port()
        url = f"http://127.0.0.1:{port}"

        def command(model: str) -> tuple[list[str], Mapping[str, str]]:
            return server.words(models / model, port), server.environment(models / model)

        words, environment = command("tiny")
        with stack.running(words, url, server.tiny, environment, body=TINY) as process:
            self.starts.append(process.start_seconds)
            request = Request(f"{url}{server.tiny}", TINY, JSON)
            check(server.name, request, RIGHT)
            by_wrk(request, 8, 1, folder)
            for count in CONNECTIONS:
                self.tiny[count].append(by_wrk(request, count, seconds, folder))
            self.megabytes.append(proportional_megabytes(process.pid))
        words, environment = command("jpeg")
        with stack.running(words, url, server.ready, environment):
            request = server.photo_request(url, photo)
            check(server.name, request, [len(photo)])
            by_wrk(request, 8, 1, folder)
            self.photos.append(by_wrk(request, 8, seconds, folder))

    def failed(self) -> int:
        """How many requests were not answered by 2xx."""
        return sum(each.failed for reports in (*self.tiny.values(), self.photos) for each in reports)


def check(name: str, request: Request, right: Sequence[float]) -> None:
    """Ask once, and end if the answer is wrong."""
    asked = urllib.request.Request(request.url, request.body, dict(request.headers))
    with urllib.request.urlopen(asked, timeout=30) as answer:
        told = json.load(answer)
    if (told["predictions"] if isinstance(told, dict) else told) != right:
        sys.exit(f"{name} answers {told} instead of {right}")


def ours() -> Server:
    """Our stack before the embedded model server."""

    def words(model: Path, port: int) -> list[str]:
        served = ["serve", str(model), "--model-server", "embedded"]
        return [sys.executable, "-m", "tfs_proxy.cli", *served, "--host", "127.0.0.1", "--port", str(port)]

    path = "/invocations"
    return Server(
        f"tfs_proxy {tfs_proxy.__version__}", words, lambda _: {}, "/ping", path, path, uploads=False
    )


def peers(home: Path) -> Iterator[Server]:
    """The others, as far as they can be installed; ``home`` is BentoML's."""
    if python := installed("litserve"):
        yield Server(
            f"LitServe {locked(APPS / 'litserve.lock', 'litserve')}",
            lambda model, port: [python, str(APPS / "litserve_app.py"), str(model / "1"), str(port)],
            lambda _: {},
            *("/health", "/predict", "/predict"),
            uploads=True,
        )
    if program := installed("bentoml"):
        serve = [program, "-m", "bentoml", "serve", "bentoml_app:Service", "--working-dir", str(APPS)]
        own = {"BENTOML_HOME": str(home), "BENTOML_DO_NOT_TRACK": "True"}
        yield Server(
            f"BentoML {locked(APPS / 'bentoml.lock', 'bentoml')}",
            lambda _, port: [*serve, "--host", "127.0.0.1", "--port", str(port)],
            lambda model: {"MODEL": str(model / "1"), **own},
            *("/readyz", "/predict", "/classify"),
            uploads=True,
        )


def installed(name: str) -> str:
    """The interpreter of a peer's environment, made if need be; "" and a sentence if it can't be."""
    words = [str(ROOT / "scripts" / "install-judge"), f"benchmarks/peers/{name}"]
    if subprocess.run(words, check=False).returncode:
        print(f"{name} can't be installed, and is left out", file=sys.stderr)
        return ""
    return str(ROOT / "build" / "peers" / name / "bin" / "python")


def locked(lock: Path, package: str) -> str:
    """The version of a package that a lock has."""
    return lock.read_text().partition(f"\n{package}==")[2].split()[0]


def table(results: Sequence[Measured]) -> str:
    """A column for each server."""

    def rate(reports: Sequence[Report]) -> str:
        return f"{statistics.median(each.rate for each in reports):,.0f}"

    def latencies(reports: Sequence[Report]) -> str:
        return " / ".join(
            f"{statistics.median(each):,.0f}" for each in zip(*((r.p50, r.p99) for r in reports), strict=True)
        )

    lines = [
        "| | " + " | ".join(each.server.name for each in results) + " |",
        "|---|" + "--:|" * len(results),
    ]
    most = CONNECTIONS[-1]
    rows: list[tuple[str, Callable[[Measured], str]]] = [
        *(
            (
                f"tiny JSON, {count} connection{'s' * (count > 1)}, requests/s",
                lambda of, count=count: rate(of.tiny[count]),
            )
            for count in CONNECTIONS
        ),
        (f"the same at {most} connections, p50 / p99, ms", lambda of: latencies(of.tiny[most])),
        ("JPEG of 106 KB, 8 connections, requests/s", lambda of: rate(of.photos)),
        ("start to the first right answer, s", lambda of: f"{statistics.median(of.starts):.1f}"),
        ("memory of all processes, MB", lambda of: f"{statistics.median(of.megabytes):.0f}"),
    ]
    return "\n".join([*lines, *(f"| {what} | {' | '.join(map(cell, results))} |" for what, cell in rows)])


def conditions(given: argparse.Namespace, busy: float) -> str:
    """The machine, the versions and the method, in sentences."""
    locks = [ROOT / "requirements.lock", *(APPS / f"{name}.lock" for name in PEERS)]
    tensorflow = " and ".join(sorted({locked(lock, "tensorflow") for lock in locks}))
    measured = f"{report.machine(busy)}; Python {platform.python_version()}, TensorFlow {tensorflow}."
    method = (
        f"Medians of {given.rounds} rounds of {given.seconds} s in which the servers take turns, by wrk on the same cores; "
        "each runs alone, with its own number of workers. LitServe and BentoML take pictures as uploads of a form."
    )
    return "\n".join([measured, method, *report.disturbed(busy)])


def main() -> None:
    """Measure, print, and write if that is asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=3, help="of each load in each round")
    parser.add_argument("--write", action="store_true", help="write the table and the picture into the pages")
    given = parser.parse_args()
    if shutil.which("wrk") is None:
        sys.exit("wrk is not installed, so nothing can be measured: scripts/install-program wrk")
    with tempfile.TemporaryDirectory() as name:
        folder, photo = Path(name), Bodies.random().photo
        results = [Measured(server) for server in (ours(), *peers(folder / "bentoml"))]
        busy = busy_cores()
        models = stack.export_models(folder / "models")
        for number in range(given.rounds):
            for at in range(len(results)):
                results[(number + at) % len(results)].round(models, photo, given.seconds, folder)
            print(f"round {number + 1} of {given.rounds}", file=sys.stderr)
    text = f"{conditions(given, busy)}\n\n{table(results)}"
    print(text)
    for each in results:
        if each.failed():
            print(f"{each.server.name}: {each.failed()} requests failed")
    if given.write and len(results) <= len(PEERS):
        print("nothing is written: the table lacks a server", file=sys.stderr)
    elif given.write:
        for page in PAGES:
            report.replace_section(page, "python servers", text)
        draw()


if __name__ == "__main__":
    main()
