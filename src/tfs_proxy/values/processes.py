"""Lives of processes, and signals at the end of another one; run as a module, the stack of an owner.

Run so, it is the parent of `tfs-proxy serve`, and its standard input is a pipe that only the owner holds
open. However the owner ends, even by kill -9, the pipe closes, and this process sends SIGTERM to the stack.
If this process is killed itself, as Ray does to the children of an actor that ends, Linux sends the SIGTERM.
"""

import ctypes
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

PROC = Path("/proc")
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


def growing_pause(attempt: int, first_seconds: float, longest_seconds: float) -> float:
    """Seconds to wait after attempt ``attempt``, counted from 1: they double up to the longest."""
    return min(first_seconds * 2.0 ** min(attempt - 1, 64), longest_seconds)


def has_ended(pid: int) -> bool:
    """True if a process is gone, or waits to be collected."""
    try:
        state = (PROC / str(pid) / "stat").read_text().rpartition(") ")[2]
    except OSError:
        if PROC.is_dir():
            return True
        try:
            os.kill(pid, 0)
        except (OSError, OverflowError) as error:
            return not isinstance(error, PermissionError)
        return pid <= 0
    return state.startswith("Z")


def signal_at_death_of(parent: int, number: int) -> Callable[[], None]:
    """Make a function that has Linux send its caller the signal when ``parent`` dies, or has by then.

    Linux sends it when the thread that started the caller ends: start it in the main thread. The caller's own
    children get none.
    """
    if sys.platform != "linux":
        return lambda: None
    prctl = ctypes.CDLL(None).prctl

    def prepare() -> None:
        prctl(_PR_SET_PDEATHSIG, number)
        if os.getppid() != parent:
            os.kill(os.getpid(), number)

    return prepare


def become_subreaper() -> bool:
    """Make orphaned processes below this one its children; False if the system can't do it."""
    if sys.platform != "linux":
        return False
    return bool(ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0)


def end_group_at(number: int) -> None:
    """Make the signal end this process and all in its process group: what a script has started, too."""
    signal.signal(number, lambda _number, _frame: os.killpg(0, signal.SIGKILL))


def main(argv: Sequence[str]) -> int:
    """Run ``argv`` until it ends or standard input does; returns its exit status."""
    before_exec = signal_at_death_of(os.getpid(), signal.SIGTERM)
    stack = subprocess.Popen(argv, stdin=subprocess.DEVNULL, preexec_fn=before_exec)  # noqa: PLW1509 - no threads yet
    # Ctrl-C reaches the whole process group, but the owner decides.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_terminate_at_end_of_input, args=(stack,), daemon=True).start()
    return stack.wait()


def _terminate_at_end_of_input(stack: "subprocess.Popen[bytes]") -> None:
    while os.read(sys.stdin.fileno(), 1024):
        pass
    stack.terminate()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
