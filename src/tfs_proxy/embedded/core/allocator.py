"""How the C library keeps memory between requests, set at the start of the server."""

from tfs_proxy.resources import MEGABYTE, set_malloc

_KEPT_BYTES = 32 * MEGABYTE
_LARGEST_KEPT_BYTES = 8 * MEGABYTE


def keep_freed_memory() -> bool:
    """Keep a few megabytes of freed memory for the next request; whether the C library can do that.

    PERF: by default the kernel gets a body's memory back after each request, and gives it out again page by
    page: a third of the time of a request of 2 MB. What is larger than 8 MB still goes back at once.
    """
    return set_malloc({"MALLOC_MMAP_THRESHOLD_": _LARGEST_KEPT_BYTES, "MALLOC_TRIM_THRESHOLD_": _KEPT_BYTES})
