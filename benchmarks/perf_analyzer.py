"""Runs Triton's own load generator, unchanged, against a stack; `scripts/install-judge perf` installs it."""

import csv
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ENVIRONMENT = Path(__file__).parents[1] / "build" / "judges" / "perf"
ANY_DEVIATION = "1000"
"""Percent. Three windows then end a run, however busy the machine is; the median of several runs is what counts."""


@dataclass(frozen=True)
class Load:
    """One kind of request: the model, the shapes of its inputs, and how it is asked for."""

    model: str
    shapes: tuple[str, ...]
    protocol: str
    address: str
    service: str = "triton"


@dataclass(frozen=True)
class Report:
    """What it measured: requests per second and latencies in ms, and the text that it printed."""

    rate: float
    p50: float
    p99: float
    text: str


def run(load: Load, connections: int, window_seconds: float, folder: Path) -> Report:
    """Three windows of load; ends the process if it reports an error."""
    table = folder / "report.csv"
    words = [str(ENVIRONMENT / "bin" / "perf_analyzer"), "-m", load.model, "-u", load.address]
    words += ["-i", load.protocol, "--service-kind", load.service, "-f", str(table)]
    words += [word for shape in load.shapes for word in ("--shape", shape)]
    words += ["--concurrency-range", str(connections), "-s", ANY_DEVIATION]
    words += ["--measurement-interval", str(round(window_seconds * 1000))]
    env = {**os.environ, "LD_LIBRARY_PATH": str(ENVIRONMENT / "native")}
    table.unlink(missing_ok=True)
    done = subprocess.run(words, env=env, capture_output=True, text=True, check=False)
    if done.returncode or not table.exists():
        sys.exit(f"{' '.join(words)}\n{done.stdout}{done.stderr}")
    return _read(table, done.stdout)


def _read(table: Path, text: str) -> Report:
    with table.open(newline="") as file:
        (row,) = csv.DictReader(file)
    p50, p99 = (float(row[f"{part} latency"]) / 1000 for part in ("p50", "p99"))
    return Report(float(row["Inferences/Second"]), p50, p99, text)
