"""Runs the fuzzers of all parsers, a few processes at a time, each with a memory limit and a seed."""

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from attack.findings import Finding
from attack.parsers import PARSERS
from support.model_fixtures import ROOT

FAULTS = ROOT / "build" / "attack" / "faults"
HANG_SECONDS = 30
MOST_INPUT_BYTES = 4096
MARGIN_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class Effort:
    """How much one process gets: inputs, and seconds after which it is enough; ``group`` parsers share one."""

    inputs: int
    seconds: int
    group: int


def can_fuzz() -> bool:
    """Whether atheris is there: it has packages for Linux on x86-64 only."""
    return importlib.util.find_spec("atheris") is not None


def attack(folder: Path, effort: Effort) -> list[Finding]:
    """One line per parser; as many processes at once as there are processors."""
    names = tuple(PARSERS)
    groups = [names[start : start + effort.group] for start in range(0, len(names), effort.group)]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        runs = pool.map(lambda group: list(fuzz(group, folder, effort)), groups)
        return [finding for findings in runs for finding in findings]


def fuzz(names: Sequence[str], folder: Path, effort: Effort) -> Iterator[Finding]:
    own = folder / "".join(filter(str.isalnum, names[0]))
    report, seeds = own / "report.json", own / "seeds"
    _write_seeds(seeds, names)
    flags = [
        f"-runs={effort.inputs}",
        f"-max_total_time={effort.seconds}",
        "-seed=1",
        f"-timeout={HANG_SECONDS}",
        f"-max_len={MOST_INPUT_BYTES}",
        f"-artifact_prefix={own}/",
    ]
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "attack.fuzz_one",
            ",".join(names),
            str(report),
            str(FAULTS),
            *flags,
            str(seeds),
        ],
        cwd=own,
        env={**os.environ, "PYTHONPATH": str(ROOT / "tests"), "TMPDIR": str(own)},
        capture_output=True,
        text=True,
        errors="replace",
        timeout=effort.seconds + MARGIN_SECONDS,
        check=False,
    )
    counts = json.loads(report.read_text()) if report.exists() else {}
    if done.returncode or not counts:
        words = f"ended with {done.returncode}: {done.stderr[-200:].strip()}"
        yield Finding("fuzzers' processes", ", ".join(names), 1, 0, words)
    for name in names:
        yield _finding(name, counts)


def _write_seeds(folder: Path, names: Sequence[str]) -> None:
    """Each parser's valid inputs behind the byte that picks it, with and without one for the parser itself."""
    folder.mkdir(parents=True)
    for place, name in enumerate(names):
        for number, seed in enumerate(PARSERS[name].seeds):
            (folder / f"{place}-{number}").write_bytes(bytes([place]) + seed)
            (folder / f"{place}-{number}-choice").write_bytes(bytes([place, number % 256]) + seed)


def _finding(name: str, counts: dict[str, Any]) -> Finding:
    faults: dict[str, int] = counts.get("faults", {}).get(name, {})
    tried, refused = (counts.get(key, {}).get(name, 0) for key in ("inputs", "refused"))
    note = f"{refused:,} refused" + "".join(f"; {count} times {kind}" for kind, count in faults.items())
    return Finding("fuzzed inputs", name, tried, tried - sum(faults.values()), note)
