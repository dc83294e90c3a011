"""The notes that workers keep of their requests, a file each, for those who only count them."""

from pathlib import Path

ID_BYTES = 32
NOTE_BYTES = 1 + ID_BYTES
"""A byte that says whether the request has ended, and the request's id."""

ENDED, BEGUN = 0, 1


def under_way(record: Path) -> int:
    """How many requests a worker's record says have begun and not ended; 0 if there is no record."""
    try:
        return record.read_bytes()[::NOTE_BYTES].count(BEGUN)
    except FileNotFoundError:
        return 0
