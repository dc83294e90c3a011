"""Orphans below this process become its children, as they do below process 1 of a container (Linux)."""

import ctypes
import sys

_PR_SET_CHILD_SUBREAPER = 36


def become_subreaper() -> bool:
    """From here on processes whose parent has ended fall to this one; whether the system can do that."""
    if sys.platform != "linux":
        return False
    return bool(ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0)
