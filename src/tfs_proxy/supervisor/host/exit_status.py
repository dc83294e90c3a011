"""How a process has ended: its exit status in words, and as shells have it; for `process` and its callers."""

import signal


def shell_status(status: int | None) -> int:
    """An exit status as shells have it: 128 and the signal's number for a child that a signal ended."""
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
