"""Which version folders lie below a model's base path: what the servable lifecycle polls."""

import errno
import os
from pathlib import Path

from tfs_proxy.names import HIGHEST_VERSION

_SCHEME = "file://"


def local(path: str) -> Path:
    """A base path or URI as a path of this machine."""
    return Path(path.removeprefix(_SCHEME))


def find(base_path: str) -> dict[int, Path]:
    """Each version number below a base path with its folder; empty if there is none.

    A folder counts when its name is a whole number of at most 63 bits; zeros may lead (``00001``), and of
    several names of one number the last counts. Raises FileNotFoundError if the base path is not a folder of
    this machine, which is all that is looked at.
    """
    folders: dict[int, Path] = {}
    root = local(base_path)
    if not root.is_dir():
        remote = "://" in base_path and not base_path.startswith(_SCHEME)
        reason = "the embedded model server reads local folders only" if remote else os.strerror(errno.ENOENT)
        raise FileNotFoundError(errno.ENOENT, reason, base_path)
    for child in sorted(root.iterdir()):
        number = _number(child.name)
        if number is not None and child.is_dir():
            folders[number] = child
    return folders


def _number(name: str) -> int | None:
    digits = name.lstrip("0") or name[:1]
    if not (name.isascii() and name.isdigit()) or len(digits) > len(str(HIGHEST_VERSION)):
        return None
    number = int(digits)
    return number if number <= HIGHEST_VERSION else None
