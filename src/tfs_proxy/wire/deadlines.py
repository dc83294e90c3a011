"""How long a client may take to send a request, to servers that read it themselves."""

HEAD_SECONDS = 10.0
"""From a request's first byte to the end of its head: any client sends a head in one piece or two."""

GRACE_SECONDS = 10.0
LEAST_BYTES_PER_SECOND = 1024
"""What a body must bring on average after the grace: the slowest mobile network brings ten times that."""

SILENCE_SECONDS = 30.0
"""Longer than a network's hiccup, and no longer: a client that has vanished never says so."""


def body_deadline(began: float, last_byte: float, size_bytes: int) -> float:
    """When a body of which ``size_bytes`` have come has taken too long, by the clock of the other two."""
    return min(began + GRACE_SECONDS + size_bytes / LEAST_BYTES_PER_SECOND, last_byte + SILENCE_SECONDS)
