"""Tells what the processes of a run cost: CPU seconds by part, and memory; processes may end meanwhile."""

import os
import re
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

PROC = Path("/proc")
TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")
SUPERVISOR = "supervisor"
MODEL_SERVER = "model server"
PARTS = {
    "tfs_proxy.cli": SUPERVISOR,  # first: its command line may name the model server's program
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


def megabytes_beside(left_out: str, pid: int) -> float:
    """Memory in MB of a run without one part, as if that shared no file with the others.

    A proportional set size would count what Python and libraries take only in part if the model server is
    the embedded one, and in full next to the official program. Of each file counts the process that has most
    of it in memory, of all else the proportional share.
    """
    anonymous, files = 0.0, dict[str, float]()
    for process in tree(pid):
        folder = PROC / str(process)
        try:
            command = (folder / "cmdline").read_bytes().decode(errors="replace")
            if part_of(command) == left_out:
                continue
            anonymous += kilobytes("Pss_Anon", (folder / "smaps_rollup").read_text())
            mapped = file_kilobytes((folder / "smaps").read_text())
        except OSError:
            continue
        files = {path: max(files.get(path, 0), mapped.get(path, 0)) for path in files | mapped}
    return (anonymous + sum(files.values())) / 1024


def busy_cores(seconds: float = 3.0) -> float:
    """How many cores are busy, by a look of some seconds in which the caller does nothing."""
    before = _idle_seconds()
    time.sleep(seconds)
    return max((os.cpu_count() or 1) - (_idle_seconds() - before) / seconds, 0.0)


def _idle_seconds() -> float:
    return sum(map(int, (PROC / "stat").read_text().split()[4:6])) / TICKS_A_SECOND


def proportional_megabytes(pid: int) -> float:
    """Memory in MB of a process and all below it: what several share counts once."""
    total = 0
    for process in tree(pid):
        try:
            total += kilobytes("Pss", (PROC / str(process) / "smaps_rollup").read_text())
        except OSError:
            continue
    return total / 1024


def file_kilobytes(smaps: str) -> dict[str, float]:
    """What a process has in memory of each file, without the pages that it has changed."""
    found: dict[str, float] = defaultdict(float)
    for mapping in re.split(r"^(?=[0-9a-f]+-[0-9a-f]+ )", smaps, flags=re.MULTILINE):
        words = mapping.partition("\n")[0].split(maxsplit=5)
        if len(words) == 6 and words[5].startswith("/"):
            found[words[5]] += kilobytes("Rss", mapping) - kilobytes("Anonymous", mapping)
    return dict(found)


def kilobytes(name: str, text: str) -> int:
    """One figure of a text of /proc/PID/smaps; 0 if it is not there, as for a process that is ending."""
    figure = re.search(rf"^{name}:\s+(\d+)", text, re.MULTILINE)
    return int(figure[1]) if figure else 0
