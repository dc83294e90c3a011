"""Measures the whole stack, the model server alone and the plain proxy, in alternating rounds.

``make bench`` runs it; ``make bench WRITE=1`` also writes the tables and the picture into the documentation.
The model server is ``tensorflow_model_server`` if it is on PATH, else the embedded one, on both sides. It needs
wrk. A shared machine is noisy: only ratios and CPU milliseconds per request are meaningful.
"""

import argparse
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path

import footprint
import gunicorn
import report
from picture import draw
from report import Figure
from rows import Row, Servers, rows_of, wait_until_quiet
from stack import baseline, export_models, model_server_words, serve, server_alone, with_script

import tfs_proxy
from processes import busy_cores

ROOT = Path(__file__).resolve().parents[1]
PAGES = {
    ROOT / "benchmarks" / "README.md": ("conditions", "ratios", "costs", "figures"),
    ROOT / "docs" / "explained" / "benchmarks.md": ("conditions", "ratios", "figures"),
}
MODELS = ("tiny", "jpeg", "f224", "rows", "waiting")
GRPC_THREADS = "--grpc_max_threads=64"
RESNET_SECONDS = 10
WITHOUT_RESNET = "ResNet-50 was not measured (`--resnet`)."


def measure(rows: Iterable[Row], rounds: int, seconds: int) -> None:
    """Fill the rows, after a second of each that does not count."""
    for row in rows:
        for side in (row.ours, row.other):
            side.send(row.connections, 1)
            wait_until_quiet(side.pids)
    for number in range(rounds):
        for row in rows:
            row.measure(number, seconds)
        print(f"round {number + 1} of {rounds}", file=sys.stderr)


def rates(given: argparse.Namespace, models: Path, folder: Path) -> tuple[list[Row], list[Figure]]:
    """The rows of rates, and /ping under load."""
    scripted = with_script(models, folder / "scripted")
    choice = given.model_server
    with ExitStack() as running:
        start = running.enter_context
        alone = start(server_alone(models, MODELS, choice, (GRPC_THREADS,)))
        waiting = start(server_alone(models, ("waiting",), choice, ("--rest_api_num_threads=256",)))
        plain = start(baseline(alone.server.url))
        servers = Servers(start(serve(models, choice)), start(serve(scripted, choice)), alone, waiting, plain)
        rows = [row for row in rows_of(servers, folder) if given.only in row.work]
        measure(rows, given.rounds, given.seconds)
        ping = [] if given.only else [footprint.ping_under_load(servers, folder)]
    return rows, ping


def resnet(given: argparse.Namespace, folder: Path) -> list[Row]:
    """The row of ResNet-50."""
    with footprint.resnet(given.model_server, folder) as row:
        measure([row], given.rounds, max(given.seconds, RESNET_SECONDS))
    return [row]


def costs_of_the_stack(given: argparse.Namespace, models: Path, folder: Path) -> Iterator[Figure]:
    """Start, memory and idle CPU."""
    scripted = footprint.with_script(models / "tiny", folder / "tiny-scripted")
    bare = folder / "tiny-bare"
    shutil.copytree(models / "tiny", bare / "tiny")
    yield from footprint.start(scripted, given.model_server, given.rounds)
    for name, model, most in (
        ("without a script", bare, footprint.MEGABYTES_BARE),
        ("with a script", scripted, footprint.MEGABYTES_SCRIPTED),
    ):
        yield from footprint.memory(name, model, given.model_server, most, folder)


def conditions(given: argparse.Namespace, busy: float) -> str:
    """The machine, the versions and what could not be had, in sentences."""
    words = model_server_words(given.model_server)
    server = "the embedded model server (no `tensorflow_model_server` on PATH)"
    if len(words) == 1:
        version = subprocess.run([*words, "--version"], capture_output=True, text=True, check=False).stdout
        server = version.partition("\n")[0] or Path(words[0]).name
    front = "nginx" if shutil.which("nginx") else "no nginx (not installed: the workers listen themselves)"
    versions = f"Python {platform.python_version()}, tfs_proxy {tfs_proxy.__version__}, gunicorn {gunicorn.__version__}"
    measured = f"{report.machine(busy)}; {versions}, {front}, {server}."
    method = (
        f"Medians of {given.rounds} alternating rounds of {given.seconds} s; HTTP load by wrk, gRPC load by grpcio "
        "in two Python processes of four threads, all on the same cores as the servers."
    )
    without = [] if given.resnet else [WITHOUT_RESNET]
    return "\n".join([measured, method, *report.disturbed(busy), *without])


def write(sections: dict[str, str]) -> None:
    """Write the tables into the pages, and draw the picture of them."""
    for page, names in PAGES.items():
        for name in names:
            report.replace_section(page, name, sections[name])
    draw()


def warn_of_failures(rows: Iterable[Row]) -> None:
    """Say which rows have answers that are not 2xx, or broken connections."""
    for row in rows:
        for side in (row.ours, row.other):
            if side.failed:
                print(f"{row.work}, {row.connections} connections: {side.failed} failed at {side.name}")


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=3, help="of each side in each round")
    parser.add_argument("--model-server", default="auto", help="auto, embedded or a program")
    parser.add_argument(
        "--only", default="", help="the rows of rates whose names contain this, and nothing else"
    )
    parser.add_argument("--resnet", action="store_true", help="ResNet-50, too: builds it once, takes minutes")
    parser.add_argument(
        "--write", action="store_true", help="write the tables and the picture into the pages"
    )
    given = parser.parse_args()
    if given.write and given.only:
        parser.error("--write writes whole tables: leave out --only")
    if shutil.which("wrk") is None:
        sys.exit("wrk is not installed, so nothing can be measured: scripts/install-program wrk")
    return given


def main() -> None:
    """Measure, print, and write if that is asked for."""
    given = parse()
    told = conditions(given, busy_cores())
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        models = export_models(folder / "models")
        rows, others = rates(given, models, folder)
        rows += resnet(given, folder) if given.resnet else []
        sections = {"conditions": told, "ratios": report.ratios(rows), "costs": report.costs(rows)}
        print("\n\n".join(sections.values()), flush=True)
        warn_of_failures(rows)
        if not given.only:
            others = [*costs_of_the_stack(given, models, folder), *others]
            sections["figures"] = report.figures(others)
            print(f"\n{sections['figures']}")
    if given.write:
        write(sections)


if __name__ == "__main__":
    main()
