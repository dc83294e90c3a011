"""The size of what is to be loaded, which `admission` judges by."""

import os
from pathlib import Path


def size_of(url: str) -> int:
    """The bytes on disk of what is to be loaded; 0 if that can't be known before."""
    try:
        return bytes_on_disk(Path(url))
    except OSError:
        return 0


def bytes_on_disk(path: Path) -> int:
    """The size in bytes of a file, or of all files below a folder; links count as what they lead to.

    0 if there is nothing. An archive has its packed size. Raises OSError if a folder can't be entered.
    """
    if not path.is_dir():
        return _size(path)
    files = {Path(folder, name).resolve() for folder, _, names in os.walk(path) for name in names}
    return sum(map(_size, files))


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
