"""Parent death: if this process dies, however that happens, Linux signals its child."""

import ctypes
import os
import signal
import sys
from collections.abc import Callable

_PR_SET_PDEATHSIG = 1


def signal_on_parent_death(number: signal.Signals) -> Callable[[], None] | None:
    """What the child does between fork and exec, as ``preexec_fn``; None if the system can't do it.

    Linux sends the signal when the thread that started the child ends: start it in the main thread. The
    child's own children get none.
    """
    if sys.platform != "linux":
        return None
    prctl, parent = ctypes.CDLL(None).prctl, os.getpid()

    def request_signal() -> None:
        prctl(_PR_SET_PDEATHSIG, int(number))
        if os.getppid() != parent:  # it died before prctl
            os.kill(os.getpid(), number)

    return request_signal
