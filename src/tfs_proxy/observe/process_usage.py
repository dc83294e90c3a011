"""What a process and its children use of the machine, read from /proc; nothing on systems without it."""

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
KILOBYTE = 1024
_STAT_CPU = slice(11, 15)
"""utime, stime, cutime and cstime: the last two are of children that have ended and been collected."""

_STAT_RSS = 21


@dataclass(frozen=True, slots=True)
class ProcessUsage:
    """Sums over a process and what runs below it."""

    resident_bytes: int = 0
    cpu_seconds: float = 0.0
    open_files: int = 0

    def __add__(self, other: "ProcessUsage") -> "ProcessUsage":
        return ProcessUsage(
            self.resident_bytes + other.resident_bytes,
            self.cpu_seconds + other.cpu_seconds,
            self.open_files + other.open_files,
        )


def usage_of_tree(pid: int, proc: Path = PROC) -> ProcessUsage:
    """A process and all below it; zeros for one that has ended."""
    return sum((usage(member, proc) for member in _tree(pid, proc)), ProcessUsage())


def usage(pid: int, proc: Path = PROC) -> ProcessUsage:
    """One process; zeros if it has ended or belongs to somebody else."""
    try:
        fields = (proc / str(pid) / "stat").read_text().rpartition(") ")[2].split()
        cpu_ticks = sum(map(int, fields[_STAT_CPU]))
        resident_bytes = int(fields[_STAT_RSS]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return ProcessUsage()
    return ProcessUsage(resident_bytes, cpu_ticks / os.sysconf("SC_CLK_TCK"), _open_files(pid, proc))


def memory_of_tree(pid: int, proc: Path = PROC) -> int:
    """Bytes of memory of a process and all below it; 0 for one that has ended.

    Pages that several processes share are divided among them. Reading this walks the page tables, which
    takes milliseconds for each gigabyte.
    """
    return sum(_memory(member, proc) for member in _tree(pid, proc))


def _memory(pid: int, proc: Path) -> int:
    """The proportional set size; what only this process has, if the kernel does not tell that."""
    with contextlib.suppress(OSError):
        return _kilobytes(proc / str(pid) / "smaps_rollup", {"Pss"}) * KILOBYTE
    with contextlib.suppress(OSError):
        return _kilobytes(proc / str(pid) / "status", {"RssAnon", "RssShmem"}) * KILOBYTE
    return 0


def _kilobytes(path: Path, names: set[str]) -> int:
    """The sum of the lines of ``path`` that are called so. Raises OSError."""
    rows = (line.split() for line in path.read_text().splitlines())
    return sum(int(row[1]) for row in rows if row and row[0].removesuffix(":") in names)


def _open_files(pid: int, proc: Path) -> int:
    with contextlib.suppress(OSError):
        return len(os.listdir(proc / str(pid) / "fd"))  # noqa: PTH208 - only the count is wanted
    return 0


def _tree(pid: int, proc: Path) -> Iterator[int]:
    yield pid
    with contextlib.suppress(OSError, ValueError):
        for task in (proc / str(pid) / "task").iterdir():
            for child in (task / "children").read_text().split():
                yield from _tree(int(child), proc)


class NeverFalling:
    """A sum that starts again from zero with each life of a process, as one that only grows."""

    def __init__(self) -> None:
        self._pid = 0
        self._base = self._last = 0.0

    def note(self, pid: int, value: float) -> float:
        """The sum over all lives, with ``value`` in this one, which is that of ``pid``."""
        if pid != self._pid:
            self._base += self._last
            self._pid, self._last = pid, 0.0
        self._last = max(self._last, value)
        return self.value

    @property
    def value(self) -> float:
        """The sum as it was last noted."""
        return self._base + self._last
