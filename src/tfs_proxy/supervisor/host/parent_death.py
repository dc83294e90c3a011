"""Ties a child to this process: if this one dies, however that happens, Linux signals the child."""

import ctypes
import os
import signal
import sys
from collections.abc import Callable

_PR_SET_PDEATHSIG = 1


def signal_on_parent_death(number: signal.Signals) -> Callable[[], None] | None:
    """What the child does between fork and exec, as ``preexec_fn``; None where the system can't do it.

    The signal comes when the thread ends that starts the child: start it in the main thread. It does not
    reach the child's own children.
    """
    if sys.platform != "linux":
        return None
    prctl, parent = ctypes.CDLL(None).prctl, os.getpid()

    def tie() -> None:
        prctl(_PR_SET_PDEATHSIG, int(number))
        if os.getppid() != parent:  # it died before it was watched
            os.kill(os.getpid(), number)

    return tie
