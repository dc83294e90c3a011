"""Two versions of the whole stack, side by side: requests per second and CPU milliseconds per request.

Run it as `python benchmarks/compare.py OTHER_CHECKOUT`. Both stacks run all the time, and take turns under
the same load, so that what else happens on the machine meets both; CPU time is steadier than rates.
"""

import argparse
import os
import statistics
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import stack
from serving import Row, load, rows_of

HERE = Path(__file__).parents[1]
TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")
PARTS = ("nginx", "gunicorn", "tfs_proxy.embedded", "tensorflow_model_server")


@dataclass
class Measured:
    """One version's results for one row: requests per second, and CPU ms per request by part."""

    rates: list[float] = field(default_factory=list)
    milliseconds: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))


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


def cpu_seconds(pid: int) -> dict[str, float]:
    """CPU time so far of a stack's processes, by part; all else is the supervisor's."""
    seconds: dict[str, float] = defaultdict(float)
    for process in (pid, *stack.descendants(pid)):
        words = Path(f"/proc/{process}/cmdline").read_bytes().decode(errors="replace")
        times = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        part = next((name for name in PARTS if name in words), "supervisor")
        seconds[part] += (int(times[11]) + int(times[12])) / TICKS_A_SECOND
    return seconds


def measure(row: Row, pid: int, connections: int, seconds: int, folder: Path, into: Measured) -> None:
    """One turn of one version."""
    before = cpu_seconds(pid)
    rate = load(row, connections, seconds, folder)[0]
    after = cpu_seconds(pid)
    into.rates.append(rate)
    for part, spent in after.items():
        into.milliseconds[part].append((spent - before.get(part, 0.0)) * 1000 / max(rate * seconds, 1))


def line(work: str, connections: int, ours: Measured, theirs: Measured) -> str:
    """The medians of one row in Markdown, with the ratios."""
    rate, other_rate = statistics.median(ours.rates), statistics.median(theirs.rates)
    cost, other_cost = (
        {part: statistics.median(version.milliseconds[part]) for part in version.milliseconds}
        for version in (ours, theirs)
    )
    own_parts = ("nginx", "gunicorn")
    own, other = (sum(costs.get(part, 0.0) for part in own_parts) for costs in (cost, other_cost))
    ratio = f"{own / other:.2f}" if other else "-"
    return (
        f"| {work} | {connections} | {other_rate:.0f} | {rate:.0f} | {rate / other_rate:.2f} "
        f"| {other:.3f} | {own:.3f} | {ratio} |"
    )


def compare(
    versions: Sequence[tuple[list[Row], list[int]]], rounds: int, seconds: int, folder: Path, only: str
) -> None:
    """Print each row of ours beside that of the other checkout."""
    print(
        "| work | connections | req/s before | now | ratio | nginx and workers, ms/request before | now | ratio |"
    )
    print("|---|---|---|---|---|---|---|---|")
    (ours, our_pids), (theirs, their_pids) = versions
    for row, other, pid, other_pid in zip(ours, theirs, our_pids, their_pids, strict=True):
        for connections in row.connections if only in f"{row.work}, {row.way}" else ():
            results = Measured(), Measured()
            for _ in range(rounds):
                measure(row, pid, connections, seconds, folder, results[0])
                measure(other, other_pid, connections, seconds, folder, results[1])
            print(line(f"{row.work}, {row.way}", connections, *results), flush=True)


def own_rows(bare: stack.Running, scripted: stack.Running) -> tuple[list[Row], list[int]]:
    """The rows that go through a stack, and the process of each."""
    rows = [row for group in rows_of(bare, scripted, bare) for row in group if row.url]
    pids = {bare.url: bare.pid, scripted.url: scripted.pid}
    served = [row for row in rows if row.url.endswith("/invocations") and "baseline" not in row.way]
    return served, [pids[row.url.removesuffix("/invocations")] for row in served]


def main() -> None:
    """Start two stacks of each version, with and without a script, and compare them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("other", type=Path, help="a checkout of the version to compare with, with its .venv")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=2)
    parser.add_argument("--model-server", default="embedded")
    parser.add_argument(
        "--env", action="append", default=[], metavar="NAME=VALUE", help="a variable for this checkout alone"
    )
    parser.add_argument("--only", default="", help="the rows whose names contain this")
    arguments = parser.parse_args()
    if not Path(python_of(arguments.other)).exists():
        sys.exit(f"{arguments.other} has no environment: run make .venv/.ready there")
    with tempfile.TemporaryDirectory() as name, ExitStack() as running:
        folder = Path(name)
        models = stack.export_models(folder / "models")
        versions = []
        own_env = dict(assignment.split("=", 1) for assignment in arguments.env)
        for checkout, env in ((HERE, own_env), (arguments.other, {})):
            bare, scripted = (
                running.enter_context(serving(checkout, served, arguments.model_server, env))
                for served in (models, stack.with_script(models, folder / f"scripted-{len(versions)}"))
            )
            versions.append(own_rows(bare, scripted))
        compare(versions, arguments.rounds, arguments.seconds, folder, arguments.only)


if __name__ == "__main__":
    main()
