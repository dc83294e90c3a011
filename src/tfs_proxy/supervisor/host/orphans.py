"""Collects orphans: as PID 1 of a container the supervisor inherits every process whose parent has ended."""

import contextlib
import os
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

PROC = Path("/proc")
GRACE_SECONDS = 2.0
"""The code that starts a child collects it at once; a zombie this old is an orphan."""

LOOK_SECONDS = 1.0


class Orphans:
    """Zombies below this process; ``collect`` may be called often and looks once a second."""

    def __init__(self, proc: Path = PROC, clock: Callable[[], float] = time.monotonic) -> None:
        self._proc = proc
        self._clock = clock
        self._looked = clock()
        self._seen: dict[int, float] = {}

    def collect(self) -> list[int]:
        """Collect orphaned zombies; their process ids."""
        now = self._clock()
        if now - self._looked < LOOK_SECONDS:
            return []
        self._looked = now
        if not _any_ended():
            self._seen.clear()
            return []
        self._seen = {pid: self._seen.get(pid, now) for pid in self._zombies()}
        old = [pid for pid, since in self._seen.items() if now - since >= GRACE_SECONDS]
        for pid in old:
            with contextlib.suppress(ChildProcessError):
                os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG)
        return old

    def _zombies(self) -> Iterable[int]:
        return (pid for pid in child_pids("self", self._proc) if has_ended(pid, self._proc))


def _any_ended() -> bool:
    """Ask for any child that waits to be collected, in one call instead of one for each in /proc."""
    try:
        return os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return False


def child_pids(of: int | str, proc: Path = PROC) -> Iterator[int]:
    """The children of a process, ended ones too until they are collected; none if there is no /proc."""
    with contextlib.suppress(OSError):
        for task in (proc / str(of) / "task").iterdir():
            yield from map(int, (task / "children").read_text().split())


def has_ended(pid: int, proc: Path = PROC) -> bool:
    """Whether a process is gone, or waits to be collected."""
    try:
        state = (proc / str(pid) / "stat").read_text().rpartition(") ")[2]
    except OSError:
        return True
    return state.startswith("Z")
