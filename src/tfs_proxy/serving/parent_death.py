"""Ends an inner stack when its owner ends: run as a module, it is the parent of `tfs-proxy serve`.

Its standard input is a pipe that only the owner holds open. However the owner ends, even by kill -9, the pipe
closes, and this process sends SIGTERM to the stack. If this process is killed itself, as Ray does to the
children of an actor that ends, Linux sends the SIGTERM.
"""

import ctypes
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence

_PR_SET_PDEATHSIG = 1


def main(argv: Sequence[str]) -> int:
    """Run ``argv`` until it ends or standard input does; returns its exit status."""
    before_exec = _signal_on_parent_death if sys.platform == "linux" else None
    stack = subprocess.Popen(argv, stdin=subprocess.DEVNULL, preexec_fn=before_exec)  # noqa: PLW1509 - no threads yet
    signal.signal(
        signal.SIGINT, signal.SIG_IGN
    )  # Ctrl-C reaches the whole process group, but the owner decides
    threading.Thread(target=_terminate_at_end_of_input, args=(stack,), daemon=True).start()
    return stack.wait()


def _signal_on_parent_death() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _terminate_at_end_of_input(stack: "subprocess.Popen[bytes]") -> None:
    while os.read(sys.stdin.fileno(), 1024):
        pass
    stack.terminate()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
