"""Moves finished files into a folder, all of them or none, never over another; the last step of `init`."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from tfs_proxy.errors import SettingsError
from tfs_proxy.names import printable


def move_all(made: Path, folder: Path) -> tuple[Path, ...]:
    """Move each file below ``made`` to the same place below ``folder``, on the same disk; their names there.

    Raises SettingsError if one is there already, and OSError; then ``folder`` is as it was.
    """
    names = sorted(path.relative_to(made) for path in made.rglob("*") if not path.is_dir())
    refuse_existing(folder, names)
    undo: list[Path] = []
    name = Path()
    try:
        for name in names:
            undo.extend(_make_folders(folder / name))
            _move(made / name, folder / name)
            undo.append(folder / name)
    except FileExistsError as error:
        _undo(undo)
        raise _exists(folder / name) from error
    except BaseException:
        _undo(undo)
        raise
    return tuple(names)


def refuse_existing(folder: Path, names: list[Path]) -> None:
    """Raise SettingsError if any of ``names`` exists below ``folder``, or if a file is in the way."""
    for name in names:
        for path in (folder / name, *(folder / parent for parent in name.parents)):
            in_the_way = path == folder / name or not path.is_dir()
            if in_the_way and (path.exists() or path.is_symlink()):
                raise _exists(path)


def _exists(path: Path) -> SettingsError:
    return SettingsError(
        f"{printable(str(path))} exists already, and init overwrites nothing: nothing was written. "
        "Move it away, or name another folder."
    )


def _move(source: Path, target: Path) -> None:
    """Raises FileExistsError if another process has made the file meanwhile."""
    try:
        target.hardlink_to(source)  # a rename would replace it
    except FileExistsError:
        raise
    except OSError:  # a disk without such links
        source.rename(target)


def _make_folders(path: Path) -> Iterator[Path]:
    """Make the folders that ``path`` needs; yields those that were not there."""
    for parent in reversed(path.parents):
        if not parent.is_dir():
            parent.mkdir()
            yield parent


def _undo(made: list[Path]) -> None:
    for path in reversed(made):
        with contextlib.suppress(OSError):
            path.rmdir() if path.is_dir() else path.unlink()
