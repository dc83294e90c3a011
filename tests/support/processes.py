"""Looks at processes by their ids (Linux): which run, and which belong to another."""

import contextlib
import os
import signal
from collections.abc import Iterable, Iterator
from pathlib import Path

from support.waiting import wait_until

END_SECONDS = STOP_SECONDS = 60.0


def descendants(pid: int) -> Iterator[int]:
    """All processes below ``pid``."""
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                yield int(child)
                yield from descendants(int(child))


def is_running(pid: int) -> bool:
    """Whether the process is there and not a zombie: zombies of a killed parent may stay here."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "Z"
    except OSError:
        return False


def stop(pids: Iterable[int]) -> None:
    """Stop these processes; each thread has stopped when this returns, which SIGSTOP alone doesn't wait for."""
    stopped = list(pids)
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    wait_until(lambda: set("".join(map(_states, stopped))) == {"T"}, STOP_SECONDS, "all threads have stopped")


def _states(pid: int) -> str:
    """The letter of each thread's state."""
    stats = [(task / "stat").read_text() for task in Path(f"/proc/{pid}/task").iterdir()]
    return "".join(stat.rpartition(") ")[2][0] for stat in stats)


def wait_until_ended(pids: Iterable[int]) -> None:
    """Wait until none of these processes runs."""
    left = list(pids)
    wait_until(
        lambda: not any(map(is_running, left)),
        END_SECONDS,
        "all processes have ended",
        details=lambda: [pid for pid in left if is_running(pid)],
    )
