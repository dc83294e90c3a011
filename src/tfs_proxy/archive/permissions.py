"""Explains why a path can't be read: which folder denies access, who owns it, and what to do."""

import os
import pwd
from collections.abc import Iterable
from pathlib import Path
from stat import S_IMODE

from tfs_proxy.errors import ArchiveError


def unreadable(path: Path, error: OSError) -> str:
    """A sentence that says why ``path`` can't be read and, for denied access, what to do."""
    if not isinstance(error, PermissionError):
        return f"{path} can't be read: {error.strerror or error}."
    barrier = next((part for part in (*reversed(path.parents), path) if not _may_read(part, path)), path)
    return f"{barrier} can't be read by user {_user(os.geteuid())}: {_owner_and_remedy(barrier)}"


def refuse_unreadable(paths: Iterable[Path]) -> None:
    """Raise ArchiveError for the first of ``paths`` that this user may not read."""
    for path in paths:
        if not os.access(path, os.R_OK):
            raise ArchiveError(unreadable(path, PermissionError()))


def _may_read(path: Path, wanted: Path) -> bool:
    """Whether ``path``, ``wanted`` or a folder above it, lets this user through to ``wanted``."""
    is_folder = os.path.isdir(path)  # noqa: PTH112 - Path.is_dir raises if a folder above may not be entered
    needed = os.X_OK if path != wanted else os.R_OK | (os.X_OK if is_folder else 0)
    return os.access(path, needed)


def _owner_and_remedy(path: Path) -> str:
    try:
        status = path.stat()
    except OSError as error:
        return f"{error.strerror}."
    return (
        f"it belongs to user {_user(status.st_uid)} and has mode {S_IMODE(status.st_mode):03o}. "
        f"Let every user read it (chmod -R a+rX {path}), or run as its owner."
    )


def _user(number: int) -> str:
    try:
        return f"{pwd.getpwuid(number).pw_name} ({number})"
    except KeyError:
        return str(number)
