"""What may not be read, in a sentence: the path that bars the way, its owner, our user and the remedy."""

import os
import pwd
from collections.abc import Iterable
from pathlib import Path
from stat import S_IMODE

from tfs_proxy.errors import ArchiveError


def unreadable(path: Path, error: OSError) -> str:
    """Why ``path`` can't be read, as a sentence."""
    if not isinstance(error, PermissionError):
        return f"{path} can't be read: {error.strerror or error}."
    barrier = next((each for each in (*reversed(path.parents), path) if not _may_read(each, path)), path)
    return f"{barrier} can't be read by user {_user(os.geteuid())}: {_owner_and_remedy(barrier)}"


def refuse_unreadable(paths: Iterable[Path]) -> None:
    """Raise ArchiveError for the first of ``paths`` that is a file which this user may not read."""
    for path in paths:
        if not os.access(path, os.R_OK):
            raise ArchiveError(unreadable(path, PermissionError()))


def _may_read(path: Path, wanted: Path) -> bool:
    """Whether the way to ``wanted`` goes on behind ``path``: a folder on it need only be entered."""
    is_folder = os.path.isdir(path)  # noqa: PTH112 - Path.is_dir raises if a folder above may not be entered
    needed = os.X_OK if path != wanted else os.R_OK | (os.X_OK if is_folder else 0)
    return os.access(path, needed)


def _owner_and_remedy(path: Path) -> str:
    try:
        about = path.stat()
    except OSError as error:
        return f"{error.strerror}."
    return (
        f"it belongs to user {_user(about.st_uid)} and has mode {S_IMODE(about.st_mode):03o}. "
        f"Let every user read it (chmod -R a+rX {path}), or run as its owner."
    )


def _user(number: int) -> str:
    try:
        return f"{pwd.getpwuid(number).pw_name} ({number})"
    except KeyError:
        return str(number)
