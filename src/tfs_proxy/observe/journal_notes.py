"""The notes of a worker's journal: which requests it has begun, in a file that others read, too.

A note is a byte that says whether the request has ended, and the request's id.
"""

from pathlib import Path

ID_BYTES = 32
NOTE_BYTES = 1 + ID_BYTES
ENDED, BEGUN = 0, 1


def under_way(record: Path) -> int:
    """How many requests a worker's record says have begun and not ended; 0 if there is no record."""
    try:
        return record.read_bytes()[::NOTE_BYTES].count(BEGUN)
    except FileNotFoundError:
        return 0
