"""Files of records in a folder: each line is there as soon as it is written, whole or not at all."""

import contextlib
import os
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from tfs_proxy.deployment import CaptureOptions
from tfs_proxy.errors import SettingsError


class CaptureFailed(Exception):
    """Records could not be written: how many are lost, and why."""

    def __init__(self, records: int, reason: str) -> None:
        super().__init__(reason)
        self.records = records


class CaptureFile(Protocol):
    """One file that grows. Its methods raise CaptureFailed."""

    @property
    def size(self) -> int:
        """Bytes in it so far."""

    @property
    def unsaved(self) -> int:
        """Lines that would be lost with the process."""

    def append(self, line: bytes) -> int:
        """Add a line; how many lines are safe since the last call."""

    def close(self) -> int:
        """Complete the file; how many lines are safe since the last call."""


class CaptureStore(Protocol):
    """Where files are."""

    def create(self, path: str) -> CaptureFile:
        """A new file at ``path`` below the target. Raises CaptureFailed."""


class Folder(Struct, frozen=True):
    """A folder, with what lies in it."""

    root: Path

    def create(self, path: str) -> "FolderFile":
        """As `CaptureStore` says."""
        try:
            return FolderFile(self.root / path)
        except OSError as error:
            raise CaptureFailed(1, f"{self.root} can't be written: {error.strerror}") from error


class FolderFile:
    """A file to which whole lines are appended."""

    unsaved = 0

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path = path
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
        self._descriptor = os.open(path, flags, 0o666)
        self.size = 0

    def append(self, line: bytes) -> int:
        """As `CaptureFile` says."""
        try:
            _write_all(self._descriptor, line)
        except OSError as error:
            with contextlib.suppress(OSError):
                os.ftruncate(self._descriptor, self.size)
            raise CaptureFailed(1, f"{self._path.parent} can't be written: {error.strerror}") from error
        self.size += len(line)
        return 1

    def close(self) -> int:
        """As `CaptureFile` says; an empty file goes. A network's file system may refuse only now."""
        try:
            os.close(self._descriptor)
        except OSError as error:
            raise CaptureFailed(0, f"{self._path.parent} can't be written: {error.strerror}") from error
        if not self.size:
            with contextlib.suppress(OSError):
                self._path.unlink()
        return 0


def _write_all(descriptor: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def check_folder(options: CaptureOptions) -> None:
    """Make the folder if the target is one; raises SettingsError if it can't be written."""
    if options.is_s3:
        return
    folder = Path(options.target)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        usable = os.access(folder, os.W_OK | os.X_OK)
        reason = "it can't be written"
    except OSError as error:
        usable, reason = False, f"{error.strerror}"
    if not usable:
        raise SettingsError(f"TFS_PROXY_CAPTURE={options.target} can't be used: {reason}.")
