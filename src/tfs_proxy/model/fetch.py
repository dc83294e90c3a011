"""Fetching of the user's MODEL: the folder that is served, which `discover` reads next."""

import logging
import os
import shlex
import threading
from contextlib import suppress
from pathlib import Path

from tfs_proxy.model.discover import SAVED_MODEL_FILES, other_format, unreadable
from tfs_proxy.model.extract import extract
from tfs_proxy.model.progress import ProgressLog
from tfs_proxy.model.stores import download, is_remote
from tfs_proxy.values.errors import ArchiveError, NoArchive
from tfs_proxy.values.layout import ARCHIVE_NAME, SAGEMAKER_MODEL_DIR, Workspace
from tfs_proxy.values.memory import MEGABYTE
from tfs_proxy.values.resources import available_resources, mounts

DOWNLOAD_FOLDER = "download"
SMALL_SHARE = 10
MODEL_FILE_ENDINGS = (".keras", ".h5", ".hdf5")
NO_ARCHIVES = frozenset({".onnx", ".index", ".pb", ".tflite"})

_log = logging.getLogger(__name__)


def fetch(model: str | None, workspace: Workspace, cancelled: threading.Event | None = None) -> Path:
    """Download and unpack ``model`` as far as necessary, and return its folder.

    ``model`` is an archive, a folder, or the address of either in a store; None is ``/opt/ml/model``.
    A folder is served in place and never written to, but if there is a ``model.tar.gz`` in it, that is
    served. Archives are unpacked into ``workspace.model``. Raises ArchiveError, with nothing left in the
    workspace, if there is nothing to serve, or if it is refused or can't be read; CancelledError, with
    nothing left either, once another thread has set ``cancelled``.
    """
    if model is not None and is_remote(model):
        return _from_store(model, workspace, cancelled)
    path = SAGEMAKER_MODEL_DIR if model is None else Path(model)
    try:
        exists = path.is_dir() or path.is_file()
    except OSError as error:
        raise ArchiveError(unreadable(path, error)) from error
    if not exists:
        if model is None:
            raise NoArchive(
                f"There is no {path}, and no MODEL was given: "
                f"give a {ARCHIVE_NAME}, a folder or an address in a store, or mount one there."
            )
        kinds = "a folder, a .keras or .h5 file, or an s3://, gs://, az:// or https:// address"
        raise NoArchive(f"There is no file or folder {path}: MODEL must be a {ARCHIVE_NAME}, {kinds}.")
    return _served(path.absolute(), workspace, cancelled)


def _served(path: Path, workspace: Workspace, cancelled: threading.Event | None) -> Path:
    archive = archive_at(path)
    if archive is None:
        return path
    ending = archive.suffix.lower()
    if ending in MODEL_FILE_ENDINGS:
        raise ArchiveError(
            f"{archive} is a model, and not an archive of one: make an archive with "
            f"`tfs-proxy pack {shlex.quote(str(archive))}`."
        )
    if archive.name in SAVED_MODEL_FILES:
        raise ArchiveError(f"{archive} is one file of a SavedModel: give its folder, {archive.parent}.")
    if ending in NO_ARCHIVES:
        raise ArchiveError(f"{archive} is {other_format(archive)}.")
    _warn_of_memory(archive, workspace.root)
    unpacking = ProgressLog(f"Unpacking {archive}", cancelled)
    extract(archive, workspace.model, unpacking)
    unpacking.finish()
    return workspace.model


def _warn_of_memory(archive: Path, target: Path) -> None:
    """Warn of a large archive if the folder that it is unpacked in is memory itself."""
    kinds = mounts()
    memory_bytes = available_resources().memory_bytes or 0
    top = next((path for path in (target, *target.parents) if path in kinds), target)
    with suppress(OSError), archive.open("rb") as file:  # unpacking it says what is wrong
        at_end = file.seek(-4, os.SEEK_END)  # gzip has the unpacked size there, modulo 4 GB
        unpacked_bytes = max(int.from_bytes(file.read(), "little"), at_end)
        if kinds.get(top) == "tmpfs" and unpacked_bytes * SMALL_SHARE > memory_bytes > 0:
            _log.warning(
                f"{archive} is unpacked into memory, since {top} is a tmpfs: {unpacked_bytes // MEGABYTE} MB "
                f"of {memory_bytes // MEGABYTE}, and the loaded model comes on top. Mount a volume there "
                f"(docker run -v {top}), or set TFS_PROXY_HOME to a folder on a disk"
            )


def archive_at(path: Path) -> Path | None:
    """Archive at ``path`` or in it; None if it is a folder to be served itself. Raises ArchiveError."""
    if not path.is_dir():
        return path
    inside = path / ARCHIVE_NAME
    try:
        if inside.is_file():
            _log.info("serving %s, which is in %s", ARCHIVE_NAME, path)
            return inside
        if not any(path.iterdir()):
            raise ArchiveError(f"{path} is empty: put NAME/1/saved_model.pb or a {ARCHIVE_NAME} into it.")
        if inside.is_dir() and not any(inside.iterdir()):
            raise ArchiveError(
                f"{inside} is an empty folder. Docker makes one if the source of a mount is missing: "
                f"put the archive in its place on the host, and start again."
            )
    except OSError as error:
        raise ArchiveError(unreadable(path, error)) from error
    return None


def _from_store(address: str, workspace: Workspace, cancelled: threading.Event | None) -> Path:
    """Download, then fetch the result as a local MODEL; delete a downloaded archive once it is unpacked."""
    folder = workspace.root / DOWNLOAD_FOLDER
    try:
        path = download(address, folder, cancelled)
        if path == folder:
            return folder.rename(workspace.model)
        return _served(path, workspace, cancelled)
    finally:
        (folder / ARCHIVE_NAME).unlink(missing_ok=True)
