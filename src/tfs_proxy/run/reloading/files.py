"""The files of the code, of the models and the archive, as `reloading` compares them."""

import importlib.util
import logging
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path

from tfs_proxy.model.discover import SAVED_MODEL_FILES
from tfs_proxy.model.s3 import objects_at
from tfs_proxy.values.errors import ArchiveError
from tfs_proxy.values.layout import ARCHIVE_NAME, SAGEMAKER_MODEL_DIR
from tfs_proxy.values.names import printable
from tfs_proxy.wire.s3_client import S3_SCHEME, s3_client

log = logging.getLogger(__name__)

Look = tuple[int, int, int]
"""A file's modification time in ns, size in bytes, and inode: atomic renames change that one."""

Snapshot = Mapping[Path, object]
"""The state of each file: its `Look`, or an object's ETag."""

TEMPORARY_ENDINGS = ("~", ".swp", ".swx", ".swo", ".tmp", ".pyc")
VIM_TEST_FILE = "4913"
"""vim writes a file of this name to find out whether it may."""


def snapshot_of_file(path: Path) -> Snapshot:
    """The file at ``path``; empty if there is none."""
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
    """Notes a file; returns the folders to search next."""
    path = Path(entry.path)
    with suppress(OSError):  # it has gone, or is a broken link
        if entry.is_dir():
            return [path]
        status = entry.stat()
        files[path] = (status.st_mtime_ns, status.st_size, status.st_ino)
    return []


def is_temporary(name: str) -> bool:
    """True if a file or folder of this name tells nothing about the code.

    The folders that Kubernetes swaps below a ConfigMap are hidden: the links to their files tell the change.
    """
    if name.startswith((".", "#")) or name.endswith(TEMPORARY_ENDINGS):
        return True
    return name in {"__pycache__", VIM_TEST_FILE}


def changed_files(before: Snapshot, after: Snapshot) -> tuple[Path, ...]:
    """Files that are new, changed or gone, sorted."""
    return tuple(sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path)))


def forget_bytecode(files: Iterable[Path]) -> None:
    """Removes Python's byte code of these modules: it can't tell two versions within a second apart."""
    for path in files:
        if path.suffix == ".py":
            with suppress(OSError):  # there is none, or nobody may write there
                Path(importlib.util.cache_from_source(path)).unlink()


CODE = "code"


class LocalModels:
    """The archive at ``path`` or in it, else the models of that folder; or a model file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def look(self) -> Snapshot:
        archive = self._path / ARCHIVE_NAME
        with suppress(OSError):
            if self._path.is_dir():
                return snapshot_of_file(archive) if archive.is_file() else snapshot_of_models(self._path)
        return snapshot_of_file(self._path)


class ModelsInS3:
    """The object or the objects at an ``s3://`` address: their ETags tell a change."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._client = cache(s3_client)
        self._last: Mapping[Path, str] = {}
        self._reported = ""

    def look(self) -> Snapshot:
        """Returns the last state if S3 can't be reached."""
        try:
            self._last = {Path(item.key): item.etag for item in objects_at(self._address, self._client)}
        except ArchiveError as error:
            if str(error) != self._reported:
                log.warning("changes can't be seen: %s", printable(str(error)))
            self._reported = str(error)
        else:
            self._reported = ""
        return self._last


def model_source(model: str | None) -> LocalModels | ModelsInS3:
    """The source of changes of MODEL, which is as `model.fetch` takes it."""
    if model is not None and model.startswith(S3_SCHEME):
        return ModelsInS3(model)
    return LocalModels(SAGEMAKER_MODEL_DIR if model is None else Path(model).absolute())


def snapshot_of_models(folder: Path) -> Snapshot:
    """Files of the folders below ``folder`` that hold a model, at any depth.

    A version whose graph has not been copied yet is left out, and so are files outside of the models.
    """
    files = {
        path: look
        for path, look in snapshot_of_folder(folder).items()
        if path.relative_to(folder).parts[0] != CODE
    }
    homes = {os.fspath(path.parent) for path in files if path.name in SAVED_MODEL_FILES}
    return {path: look for path, look in files.items() if not homes.isdisjoint(map(os.fspath, path.parents))}
