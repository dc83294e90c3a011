"""The size of what is to be loaded, which `admission` judges by."""

import os
from itertools import islice
from pathlib import Path


def size_of(url: str, most_files: int) -> int:
    """The bytes on disk of what is to be loaded, of so many files at most; 0 if that can't be known before.

    Waits for the disk: call it in a thread.
    """
    try:
        return bytes_on_disk(Path(url), most_files)
    except OSError:
        return 0


def bytes_on_disk(path: Path, most_files: int = 100_000) -> int:
    """The size in bytes of a file, or of ``most_files`` below a folder; links count as what they lead to.

    0 if there is nothing. An archive has its packed size. Raises OSError if a folder can't be entered.
    """
    if not path.is_dir():
        return _size(path)
    found = (Path(folder, name) for folder, _, names in os.walk(path) for name in names)
    return sum(map(_size, {file.resolve() for file in islice(found, most_files)}))


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
