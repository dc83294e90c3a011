"""Finds the archives below a folder of many, and the name that each has as a model; `fetch` opens them."""

import os
from collections.abc import Iterator
from pathlib import Path, PurePath

from tfs_proxy.archive.discover import discover
from tfs_proxy.archive.permissions import unreadable
from tfs_proxy.errors import ArchiveError, DiscoveryError, NoModelFound
from tfs_proxy.layout import DEFAULT_PROGRAM, ModelLayout
from tfs_proxy.names import printable

ARCHIVE_SUFFIX = ".tar.gz"
SLASH = "--"
"""What stands for a slash of the path in a model's name."""


def archives_below(folder: Path, program: str = DEFAULT_PROGRAM) -> dict[str, list[Path]]:
    """The paths of archives below ``folder`` by model name, sorted; more than one if their names meet.

    An archive is a file ``*.tar.gz`` at any depth, or a folder directly below ``folder`` that holds a
    SavedModel or the script ``program``, and no archive. Hidden folders and links to folders are left out.
    Raises ArchiveError if ``folder`` is not a folder, has no archive below it, or can't be read.
    """
    if not folder.is_dir():
        raise ArchiveError(f"There is no folder {printable(str(folder))}.")
    found: dict[str, list[Path]] = {}
    try:
        for path in _archives(folder, program):
            found.setdefault(collected_name(path.relative_to(folder)), []).append(path)
    except OSError as error:
        raise ArchiveError(printable(unreadable(Path(error.filename), error))) from error
    if not found:
        raise ArchiveError(f"There is no *{ARCHIVE_SUFFIX} below {printable(str(folder))}.")
    return dict(sorted(found.items()))


def collected_name(path: PurePath) -> str:
    """The name of the model whose archive has this path, relative to the folder of all."""
    return path.as_posix().removesuffix(ARCHIVE_SUFFIX).replace("/", SLASH)


def _archives(folder: Path, program: str) -> Iterator[Path]:
    for entry in sorted(folder.iterdir()):
        if _is_folder(entry):
            yield from _archives_in(entry, program)
        elif entry.name.endswith(ARCHIVE_SUFFIX) and entry.is_file():
            yield entry


def _archives_in(folder: Path, program: str) -> list[Path]:
    """The archives at any depth of ``folder``, else itself if it holds a model."""
    if ModelLayout(folder, program).script.is_file():
        return [folder]  # files below code/ are the script's
    packed = [
        Path(parent, name)
        for parent, _, names in _walk(folder)
        for name in sorted(names)
        if name.endswith(ARCHIVE_SUFFIX)
    ]
    return packed or ([folder] if _holds_model(folder) else [])


def _walk(folder: Path) -> Iterator[tuple[str, list[str], list[str]]]:
    """As os.walk, in the order of names and without hidden folders; raises OSError."""
    for parent, folders, names in os.walk(folder, onerror=_raise):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        yield parent, folders, names


def _raise(error: OSError) -> None:
    raise error


def _is_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink() and not path.name.startswith(".")


def _holds_model(folder: Path) -> bool:
    try:
        discover(folder)
    except NoModelFound:
        return False
    except DiscoveryError:
        return True  # there is one, which can't be served: that is for `check` to say
    return True
