"""Usage of the machine by a process and its children, read from /proc; nothing on systems without it."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct
from msgspec.structs import astuple

from tfs_proxy.values.memory import KILOBYTE
from tfs_proxy.values.processes import PROC

_STAT_CPU = slice(11, 15)
"""Fields utime, stime, cutime and cstime: the last two are of children that have ended and been collected."""

_STAT_RSS = 21


class ProcessUsage(Struct, frozen=True):
    """Sums over a process and its descendants."""

    resident_bytes: int = 0
    cpu_seconds: float = 0.0
    open_files: int = 0


def usage_of_tree(pid: int, proc: Path = PROC) -> ProcessUsage:
    """Usage of a process and its descendants; zeros for one that has ended."""
    usages = (astuple(usage(member, proc)) for member in process_tree(pid, proc))
    return ProcessUsage(*map(sum, zip(*usages, strict=True)))


def usage(pid: int, proc: Path = PROC) -> ProcessUsage:
    """Usage of one process; zeros if it has ended or belongs to somebody else."""
    try:
        fields = _read(f"{proc}/{pid}/stat").rpartition(b") ")[2].split()
        cpu_ticks = sum(map(int, fields[_STAT_CPU]))
        resident_bytes = int(fields[_STAT_RSS]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return ProcessUsage()
    return ProcessUsage(resident_bytes, cpu_ticks / os.sysconf("SC_CLK_TCK"), _open_files(pid, proc))


def memory_of_tree(pid: int, proc: Path = PROC) -> int:
    """Bytes of memory of a process and its descendants; 0 for one that has ended.

    Pages that several processes share are divided among them. Reading this walks the page tables, which
    takes milliseconds for each gigabyte.
    """
    return sum(_memory(member, proc) for member in process_tree(pid, proc))


def _memory(pid: int, proc: Path) -> int:
    """Proportional set size in bytes; private memory alone if the kernel does not tell it."""
    with contextlib.suppress(OSError):
        return _kilobytes(proc / str(pid) / "smaps_rollup", {"Pss"}) * KILOBYTE
    return _own_memory(pid, proc)


def own_memory_of_tree(pid: int, proc: Path = PROC) -> int:
    """Bytes of memory of a process and its descendants that no file backs; 0 for one that has ended.

    Pages that a fork shares count for each process. The kernel has this number at hand.
    """
    return sum(_own_memory(member, proc) for member in process_tree(pid, proc))


def _own_memory(pid: int, proc: Path) -> int:
    with contextlib.suppress(OSError):
        return _kilobytes(proc / str(pid) / "status", {"RssAnon", "RssShmem"}) * KILOBYTE
    return 0


def _kilobytes(path: Path, names: set[str]) -> int:
    """Sum of the lines of ``path`` with these names. Raises OSError."""
    rows = (line.split() for line in path.read_text().splitlines())
    return sum(int(row[1]) for row in rows if row and row[0].removesuffix(":") in names)


def _open_files(pid: int, proc: Path) -> int:
    with contextlib.suppress(OSError):
        path = f"{proc}/{pid}/fd"
        # Since Linux 6.2 the size says how many there are; before it is 0, and they are counted.
        return os.stat(path).st_size or len(os.listdir(path))  # noqa: PTH116, PTH208
    return 0


def process_tree(pid: int, proc: Path = PROC) -> Iterator[int]:
    """Yield the ids of a process and its descendants."""
    yield pid
    with contextlib.suppress(OSError, ValueError):
        for thread in os.listdir(f"{proc}/{pid}/task"):  # noqa: PTH208
            for child in _read(f"{proc}/{pid}/task/{thread}/children").split():
                yield from process_tree(int(child), proc)


def _read(path: str) -> bytes:
    # A scrape reads one for each thread; as text, with a buffer, it costs several times as much.
    with open(path, "rb", buffering=0) as file:  # noqa: PTH123
        return file.readall()


class NeverFalling:
    """Sum that goes on if its source starts again from zero, as with each life of a process."""

    def __init__(self) -> None:
        self._pid = 0
        self._base = self._last = 0.0

    def note(self, pid: int, value: float) -> float:
        """Take ``value`` of the process ``pid``; returns the sum over all processes so far."""
        if pid != self._pid:
            self._base += self._last
            self._pid = pid
            self._last = 0.0
        self._last = max(self._last, value)
        return self.value

    @property
    def value(self) -> float:
        return self._base + self._last
