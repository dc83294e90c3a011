"""How the C library keeps memory between requests, set at the start of the server."""

import ctypes

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""Parameters of glibc's mallopt(3)."""
_MEGABYTE = 1 << 20
_KEPT_BYTES = 32 * _MEGABYTE
_LARGEST_KEPT_BYTES = 8 * _MEGABYTE


def keep_freed_memory() -> bool:
    """Keep a few megabytes of freed memory for the next request; whether the C library can do that.

    PERF: by default the kernel gets a body's memory back after each request, and gives it out again page by
    page: a third of the time of a request of 2 MB. What is larger than 8 MB still goes back at once.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # not glibc
        return False
    done = mallopt(_MMAP_THRESHOLD, _LARGEST_KEPT_BYTES), mallopt(_TRIM_THRESHOLD, _KEPT_BYTES)
    return all(done)
