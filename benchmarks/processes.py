"""Tells what the processes of a run cost: CPU seconds by part, and memory; processes may end meanwhile."""

import os
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

PROC = Path("/proc")
TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")
SUPERVISOR = "supervisor"
MODEL_SERVER = "model server"
PARTS = {
    "tfs_proxy.embedded": MODEL_SERVER,
    "tensorflow_model_server": MODEL_SERVER,
    "baseline:app": "plain proxy",
    "gunicorn": "workers",
    "nginx": "nginx",
}
"""Words of a command line, and the part that they tell; the first that is found counts."""


def tree(pid: int) -> Iterator[int]:
    """A process and all below it, without those that end meanwhile."""
    yield pid
    try:
        children = [
            child
            for task in (PROC / str(pid) / "task").iterdir()
            for child in (task / "children").read_text().split()
        ]
    except OSError:
        return
    for child in children:
        yield from tree(int(child))


def part_of(command: str) -> str:
    """The part that a command line belongs to; all else is the supervisor's."""
    return next((part for words, part in PARTS.items() if words in command), SUPERVISOR)


def cpu_ticks(stat: str) -> int:
    """User and system time of a process and of its ended children, from the text of /proc/PID/stat.

    With the children nothing is lost if one ends between two readings: its parent has its time then.
    """
    return sum(int(field) for field in stat.rpartition(")")[2].split()[11:15])


def cpu_seconds(*pids: int) -> dict[str, float]:
    """CPU time so far of the processes and all below them, by part."""
    seconds: dict[str, float] = defaultdict(float)
    for process in (each for pid in pids for each in tree(pid)):
        folder = PROC / str(process)
        try:
            command = (folder / "cmdline").read_bytes().decode(errors="replace")
            ticks = cpu_ticks((folder / "stat").read_text())
        except OSError:
            continue
        seconds[part_of(command)] += ticks / TICKS_A_SECOND
    return dict(seconds)


def spent_since(before: Mapping[str, float], *pids: int) -> dict[str, float]:
    """CPU seconds by part since ``before``, which `cpu_seconds` told."""
    after = cpu_seconds(*pids)
    return {part: max(seconds - before.get(part, 0.0), 0.0) for part, seconds in after.items()}


def megabytes(pid: int) -> dict[str, float]:
    """Proportional set size in MB of a run, by part."""
    sizes: dict[str, float] = defaultdict(float)
    for process in tree(pid):
        folder = PROC / str(process)
        try:
            command = (folder / "cmdline").read_bytes().decode(errors="replace")
            pss = re.search(r"^Pss:\s+(\d+)", (folder / "smaps_rollup").read_text(), re.MULTILINE)
        except OSError:
            continue
        sizes[part_of(command)] += int(pss[1]) / 1024 if pss else 0.0
    return dict(sizes)
