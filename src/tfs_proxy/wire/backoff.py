"""Growing pauses: between attempts of a request, and between starts of a program that keeps ending."""


def growing_pause(attempt: int, first_seconds: float, longest_seconds: float) -> float:
    """Seconds to wait after attempt ``attempt``, counted from 1: they double up to the longest."""
    return min(first_seconds * 2.0 ** min(attempt - 1, 64), longest_seconds)
