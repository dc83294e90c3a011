"""What the files below a folder look like, so that `reloader` finds out that some have changed."""

import importlib.util
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

Look = tuple[int, int, int]
"""A file's time of change in ns, its size in bytes, and its inode: atomic renames change that one."""

Snapshot = Mapping[Path, object]
"""What tells a change by file: its `Look`, or an object's ETag."""

TEMPORARY_ENDINGS = ("~", ".swp", ".swx", ".swo", ".tmp", ".pyc")
VIM_TEST_FILE = "4913"
"""vim writes a file of this name to find out whether it may."""


def snapshot_of_file(path: Path) -> Snapshot:
    """The file behind ``path``; empty if there is none."""
    try:
        status = path.stat()
    except OSError:
        return {}
    return {path: (status.st_mtime_ns, status.st_size, status.st_ino)}


def snapshot_of_folder(folder: Path) -> Snapshot:
    """The files below ``folder``, links followed; without caches, hidden and editors' temporary files."""
    files: dict[Path, Look] = {}
    waiting, visited = [folder], set()
    while waiting:
        parent = waiting.pop()
        with suppress(OSError):  # it has gone, or may not be read
            real = parent.resolve()
            if real in visited:
                continue
            visited.add(real)
            for entry in os.scandir(parent):
                if not is_temporary(entry.name):
                    waiting += _enter(files, entry)
    return files


def _enter(files: dict[Path, Look], entry: os.DirEntry[str]) -> list[Path]:
    """Note a file; the folders to be searched next."""
    path = Path(entry.path)
    with suppress(OSError):  # it has gone, or leads nowhere
        if entry.is_dir():
            return [path]
        status = entry.stat()
        files[path] = (status.st_mtime_ns, status.st_size, status.st_ino)
    return []


def is_temporary(name: str) -> bool:
    """Whether a file or folder of this name says nothing about the code.

    The folders that Kubernetes swaps below a ConfigMap are hidden: the links to their files tell the change.
    """
    if name.startswith((".", "#")) or name.endswith(TEMPORARY_ENDINGS):
        return True
    return name in {"__pycache__", VIM_TEST_FILE}


def changed_files(before: Snapshot, after: Snapshot) -> tuple[Path, ...]:
    """The files that are new, other ones or gone, sorted."""
    return tuple(sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path)))


def forget_bytecode(files: Iterable[Path]) -> None:
    """Remove what Python has kept of these modules: two versions within a second look the same to it."""
    for path in files:
        if path.suffix == ".py":
            with suppress(OSError):  # there is none, or nobody may write there
                Path(importlib.util.cache_from_source(path)).unlink()
