"""Ends the serving stack of a job with the job: run as a module, it is the parent of `tfs-proxy serve`.

Its standard input is a pipe that only the job holds open. However the job ends, kill -9 included, the
pipe closes; then the stack gets SIGTERM. Where this process is killed, as Ray does with the children of
an actor that ends, Linux sends it.
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
    """Run ``argv`` until it ends or standard input does; its exit status."""
    tied = _tie_to_parent if sys.platform == "linux" else None
    stack = subprocess.Popen(argv, stdin=subprocess.DEVNULL, preexec_fn=tied)  # noqa: PLW1509 - no threads yet
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group: the job decides
    threading.Thread(target=_end_with_input, args=(stack,), daemon=True).start()
    return stack.wait()


def _tie_to_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _end_with_input(stack: "subprocess.Popen[bytes]") -> None:
    while os.read(sys.stdin.fileno(), 1024):
        pass
    stack.terminate()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
