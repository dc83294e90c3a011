"""Processes in the system: how they end, who inherits them, and the signals that end a run."""

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

from tfs_proxy.values.processes import PROC, has_ended, signal_at_death_of


def shell_status(status: int | None) -> int:
    """An exit status as shells have it: 128 + N for a child that signal N ended."""
    if status is None:
        return 1
    return 128 - status if status < 0 else status


def describe_exit(status: int | None) -> str:
    """An exit status in words: ``exit status 3``, ``SIGKILL``."""
    if status is None:
        return "no exit status"
    if status < 0:
        return signal.Signals(-status).name if -status in set(signal.Signals) else f"signal {-status}"
    return f"exit status {status}"


OOM_SCORE = Path("/proc/self/oom_score_adj")
SOONER_KILLED = 100
"""Thousandths of all memory that a child counts as larger than its parent, which has to tell of its end."""


def before_exec(number: signal.Signals) -> Callable[[], None] | None:
    """A ``preexec_fn`` that has Linux send the signal to the child when its parent dies; else None.

    Out of memory, Linux kills the child before its parent; and a file that
    would be too large (``ulimit -f``) is an error in it, and not its end.
    """
    if sys.platform != "linux":
        return None
    end_with_parent = signal_at_death_of(os.getpid(), number)
    own_score = int(OOM_SCORE.read_text())

    def prepare() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        with contextlib.suppress(OSError):
            descriptor = os.open(OOM_SCORE, os.O_WRONLY)
            os.write(descriptor, b"%d" % min(own_score + SOONER_KILLED, 1000))
            os.close(descriptor)
        end_with_parent()

    return prepare


LOST = 255
"""The exit status of a process that somebody else has collected, as in asyncio."""


class RunningProcess(Protocol):
    """The parts of asyncio's ``Process`` that are used."""

    @property
    def pid(self) -> int: ...

    async def wait(self) -> int:
        """The exit status, or the negative number of the signal that ended it."""

    def send_signal(self, signal: int, /) -> None:
        """Raises ProcessLookupError if it has ended."""


class ForkedProcess:
    """A child of this process that another one has forked (Linux); create it in the event loop.

    Raises OSError if the system can't watch it.
    """

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._loop = asyncio.get_running_loop()
        self._descriptor = os.pidfd_open(pid)
        self._exit_status: asyncio.Future[int] = self._loop.create_future()
        self._loop.add_reader(self._descriptor, self._collect)

    async def wait(self) -> int:
        return await asyncio.shield(self._exit_status)

    def send_signal(self, signal: int, /) -> None:
        """Its number can't be reused until it has been collected."""
        if not self._exit_status.done():
            os.kill(self.pid, signal)

    def _collect(self) -> None:
        self._loop.remove_reader(self._descriptor)
        os.close(self._descriptor)
        try:
            _, status = os.waitpid(self.pid, 0)
            self._exit_status.set_result(os.waitstatus_to_exitcode(status))
        except ChildProcessError:
            self._exit_status.set_result(LOST)


def can_watch_forked() -> bool:
    """True if the system can wait for processes that this one has not started itself."""
    if not hasattr(os, "pidfd_open"):
        return False
    try:
        os.close(os.pidfd_open(os.getpid()))
    except OSError:
        return False
    return True


GRACE_SECONDS = 2.0
"""The code that starts a child collects it at once; a zombie this old is an orphan."""

LOOK_SECONDS = 1.0


class Orphans:
    """Zombies below this process; ``collect`` may be called often and looks once a second."""

    def __init__(self) -> None:
        self._looked = time.monotonic()
        self._seen: dict[int, float] = {}

    def collect(self) -> list[int]:
        """Collects orphaned zombies; returns their process ids."""
        now = time.monotonic()
        if now - self._looked < LOOK_SECONDS:
            return []
        self._looked = now
        has_ended_ones = False
        with contextlib.suppress(ChildProcessError):  # one call instead of one for each in /proc
            has_ended_ones = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        if not has_ended_ones:
            self._seen.clear()
            return []
        zombies = (pid for pid in child_pids("self") if has_ended(pid))
        self._seen = {pid: self._seen.get(pid, now) for pid in zombies}
        old = [pid for pid, since in self._seen.items() if now - since >= GRACE_SECONDS]
        for pid in old:
            with contextlib.suppress(ChildProcessError):
                os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG)
        return old


def child_pids(of: int | str) -> Iterator[int]:
    """The children of a process, ended ones too until they are collected; none without /proc."""
    with contextlib.suppress(OSError):
        for task in (PROC / str(of) / "task").iterdir():
            yield from map(int, (task / "children").read_text().split())


def stop_signals() -> tuple[signal.Signals, ...]:
    """SIGTERM, SIGINT, SIGQUIT, and SIGHUP unless it is ignored, as ``nohup`` does."""
    hangup = () if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else (signal.SIGHUP,)
    return signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, *hangup


def reason(number: signal.Signals) -> str:
    """The beginning of the log line about the stop."""
    if number is signal.SIGHUP:
        return "SIGHUP: nothing is reloaded; stopping as on SIGTERM"
    return f"{number.name}: stopping"
