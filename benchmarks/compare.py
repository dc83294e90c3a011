"""Two versions of the project, side by side: requests per second and CPU milliseconds per request.

Run it as `python benchmarks/compare.py OTHER_CHECKOUT`. Both stacks run all the time, and take turns under
the same load, so that what else happens on the machine meets both; CPU time is steadier than rates. It ends
with 1 if anything costs more than 3 % more CPU time than in the other checkout.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import stack
from load import JSON, TINY, Report, Request, by_wrk
from report import median_ratio
from rows import ATTRIBUTES, Bodies, Side

from processes import MODEL_SERVER

HERE = Path(__file__).resolve().parents[1]
MOST = 1.03
SCRAPE_SECONDS = 0.1
CONVERSIONS = HERE / "benchmarks" / "conversions.py"
TRANSFORM = HERE / "benchmarks" / "transform.py"
Work = tuple[str, int, Side]
"""A row's name, its connections, and one version's side of it."""


def python_of(checkout: Path) -> str:
    """The interpreter of a checkout's own environment."""
    return str(checkout / ".venv" / "bin" / "python")


@contextmanager
def serving(
    checkout: Path, model: Path, model_server: str, env: Mapping[str, str]
) -> Iterator[stack.Running]:
    """The stack of one checkout."""
    port = stack.free_port()
    words = [python_of(checkout), "-m", "tfs_proxy.cli", "serve", str(model), "--host", "127.0.0.1"]
    words += ["--port", str(port), "--model-server", model_server]
    settings = {"SAGEMAKER_TFS_DEFAULT_MODEL_NAME": "tiny", **env}
    with stack.running(words, f"http://127.0.0.1:{port}", "/ping", settings) as server:
        yield server


@contextmanager
def scraping(url: str) -> Iterator[None]:
    """Ask for /metrics all the time, as several collectors would."""
    ended = threading.Event()

    def scrape() -> None:
        while not ended.wait(SCRAPE_SECONDS):
            urllib.request.urlopen(f"{url}/metrics", timeout=10).close()

    scraper = threading.Thread(target=scrape)
    scraper.start()
    try:
        yield
    finally:
        ended.set()
        scraper.join()


def works(bare: stack.Running, scripted: stack.Running, folder: Path) -> Iterator[Work]:
    """One version's side of each row."""
    bodies = Bodies.random()

    def side(
        server: stack.Running, body: bytes, content_type: str, model: str, *, scraped: bool = False
    ) -> Side:
        headers = {**JSON, "Content-Type": content_type, ATTRIBUTES: f"tfs-model-name={model}"}
        request = Request(f"{server.url}/invocations", body, headers)

        def send(connections: int, seconds: int) -> Report:
            if not scraped:
                return by_wrk(request, connections, seconds, folder)
            with scraping(server.url):
                return by_wrk(request, connections, seconds, folder)

        return Side(model, send, (server.pid,))

    kind, octets = "application/json", "application/octet-stream"
    for name, server in (("no script", bare), ("classic script", scripted)):
        for connections in (1, 8, 64):
            yield f"tiny JSON, {name}", connections, side(server, TINY, kind, "tiny")
        scraped = side(server, TINY, kind, "tiny", scraped=True)
        yield f"tiny JSON, {name}, /metrics on", 8, scraped
    for connections in (8, 64):
        yield (
            "JPEG, classic script with base64",
            connections,
            side(scripted, bodies.photo, "image/jpeg", "jpeg"),
        )
    yield "JPEG, script returns bytes", 8, side(scripted, bodies.photo, "image/x-bytes", "jpeg")
    yield "224x224x3 floats, script returns the array", 8, side(scripted, bodies.floats, octets, "f224")
    yield "1 MB of CSV, no script", 8, side(bare, bodies.csv, "text/csv", "rows")
    for connections in (64, 256):
        yield "model that waits 0.1 s, classic script", connections, side(scripted, TINY, kind, "waiting")


def own_costs(side: Side) -> list[float]:
    """CPU ms per request of all but the model server, by round."""
    return [sum(cpu for part, cpu in cost.items() if part != MODEL_SERVER) for cost in side.costs]


def compare(ours: Work, theirs: Work, rounds: int, seconds: int) -> float:
    """Print a row; the ratio of CPU time."""
    work, connections, own = ours
    other = theirs[2]
    for side in (own, other):
        side.send(connections, 1)
    for number in range(rounds):
        for side in (own, other) if number % 2 else (other, own):
            side.measure(connections, seconds)
    rate, other_rate = statistics.median(own.rates), statistics.median(other.rates)
    spent, other_spent = own_costs(own), own_costs(other)
    ratio = median_ratio(spent, other_spent)
    print(
        f"| {work} | {connections} | {other_rate:.0f} | {rate:.0f} | {median_ratio(own.rates, other.rates):.2f} "
        f"| {statistics.median(other_spent):.4f} | {statistics.median(spent):.4f} | {ratio:.2f} |",
        flush=True,
    )
    return ratio


def measured_by(checkout: Path, script: Path) -> dict[str, float]:
    """A checkout's CPU milliseconds by row, as a script of ours says with ``--json``."""
    words = [python_of(checkout), str(script), "--json"]
    done = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True, cwd=script.parent)
    values: dict[str, float] = json.loads(done.stdout)
    return values


def compare_processes(other: Path, script: Path, rounds: int, only: str) -> dict[str, float]:
    """Print the rows of a script that measures without a stack, in turns; the ratios of CPU time."""
    ours: list[dict[str, float]] = []
    theirs: list[dict[str, float]] = []
    for number in range(rounds):
        for checkout, into in ((HERE, ours), (other, theirs))[:: 1 if number % 2 else -1]:
            into.append(measured_by(checkout, script))
    ratios = {}
    for name in (name for name in ours[0] if only in name):
        own, beside = ([measured[name] for measured in version] for version in (ours, theirs))
        ratios[name] = median_ratio(own, beside)
        print(
            f"| {name} | | | | | {statistics.median(beside):.3f} | {statistics.median(own):.3f} "
            f"| {ratios[name]:.2f} |",
            flush=True,
        )
    return ratios


def compare_stacks(given: argparse.Namespace, running: ExitStack, folder: Path) -> dict[str, float]:
    """Start two stacks of each version, with and without a script, and print their rows; the ratios."""
    models = stack.export_models(folder / "models")
    scripted = stack.with_script(models, folder / "scripted")
    own_env = dict(assignment.split("=", 1) for assignment in given.env)
    versions: list[list[Work]] = []
    for checkout, env in ((HERE, own_env), (given.other, {})):
        bare, with_script = (
            running.enter_context(serving(checkout, served, given.model_server, env))
            for served in (models, scripted)
        )
        versions.append(list(works(bare, with_script, folder)))
    return {
        f"{ours[0]}, {ours[1]} connections": compare(ours, theirs, given.rounds, given.seconds)
        for ours, theirs in zip(*versions, strict=True)
        if given.only in ours[0]
    }


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("other", type=Path, help="a checkout of the version to compare with, with its .venv")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=2)
    parser.add_argument("--model-server", default="embedded")
    parser.add_argument(
        "--env", action="append", default=[], metavar="NAME=VALUE", help="a variable for this checkout alone"
    )
    parser.add_argument("--only", default="", help="the rows whose names contain this")
    given = parser.parse_args()
    given.other = given.other.resolve()
    if not Path(python_of(given.other)).exists():
        sys.exit(f"{given.other} has no environment: run make .venv/.ready there")
    return given


def main() -> None:
    """Compare, and name what became slower."""
    given = parse()
    print("| work | connections | req/s before | now | ratio | own CPU ms before | now | ratio |")
    print("|---|---|---|---|---|---|---|---|")
    only, rounds = given.only, given.rounds
    ratios: dict[str, float] = {}
    if not only.startswith(("conversion", "transform")):
        with tempfile.TemporaryDirectory() as name, ExitStack() as running:
            ratios |= compare_stacks(given, running, Path(name))
    if not only or only.startswith("conversion"):
        ratios |= compare_processes(given.other, CONVERSIONS, rounds, only)
    if not only or only.startswith("transform"):
        ratios |= compare_processes(given.other, TRANSFORM, rounds, only)
    slower = {name: ratio for name, ratio in ratios.items() if ratio > MOST}
    for name, ratio in slower.items():
        print(f"slower: {name}: {ratio:.2f} of the CPU time")
    sys.exit(1 if slower else 0)


if __name__ == "__main__":
    main()
