"""Objects of a job in local files, and the folder that outputs go to."""

import contextlib
import fcntl
import io
import itertools
import json
import logging
import os
import shutil
import stat
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from msgspec import Struct

from tfs_proxy.transform.run_statistics import StorageError
from tfs_proxy.values.errors import SettingsError

log = logging.getLogger(__name__)

OUT = ".out"
ERRORS = ".err"


class InputObject(Struct, frozen=True):
    """One object to transform.

    ``address`` is its path or ``s3://`` address, ``name`` its path below the input prefix, with slashes.
    ``version`` changes when its content does: an ETag, or size and time. ``size`` is in bytes.
    """

    address: str
    name: str
    size: int
    version: str


STATE_FOLDER = ".tfs-proxy-transform"
MAX_NAME_BYTES = 255


def local_objects(path: Path) -> Iterator[InputObject]:
    """The file ``path``, or every file below the folder ``path``, sorted by name.

    Raises SettingsError if there is nothing of that name.
    """
    if path.is_file():
        yield local_object(path, path.name)
    elif path.is_dir():
        for file in _files(path):
            yield local_object(file, file.relative_to(path).as_posix())
    else:
        raise SettingsError(f"There is no input {path}: give a file, a folder or an s3:// address.")


def _files(path: Path) -> Iterator[Path]:
    """All files below ``path`` but hidden ones; follows links, but visits no folder twice."""
    seen = {path.resolve()}
    for folder, folders, files in os.walk(path, followlinks=True):
        if hidden := [name for name in (*folders, *files) if name.startswith(".") and name != STATE_FOLDER]:
            log.info("names that begin with a dot are no input: %s in %s", ", ".join(hidden[:10]), folder)
        targets = {name: Path(folder, name).resolve() for name in folders if not name.startswith(".")}
        folders[:] = [name for name, target in targets.items() if target not in seen]
        seen.update(targets[name] for name in folders)
        yield from (Path(folder, file) for file in files if not file.startswith("."))


def local_object(path: Path, name: str) -> InputObject:
    """One file as an object. Raises SettingsError if it can't be read."""
    try:
        status = path.stat()
    except OSError as error:
        raise SettingsError(f"The input {path} can't be read: {error.strerror}.") from error
    if not stat.S_ISREG(status.st_mode):
        raise SettingsError(f"The input {path} is not a regular file.")
    return InputObject(str(path), name, status.st_size, f"{status.st_size}-{status.st_mtime_ns}")


def open_file(path: str) -> io.FileIO:
    """The bytes of a file. Raises StorageError."""
    try:
        return io.FileIO(path)
    except OSError as error:
        raise StorageError(f"it can't be read: {error.strerror}") from error


class LocalTarget:
    """A folder of outputs, with a journal of what is finished.

    Outputs are written in the state folder, on the same file system, and renamed into place; then a line
    is added to the journal. If a run is killed between the two, the next does that object again, with the
    same result. ``shard`` is different for all machines that write to the same folder.
    """

    def __init__(self, folder: Path, shard: str = "0-of-1") -> None:
        self._folder = folder
        self._state = folder / STATE_FOLDER
        self._growing = self._state / f"growing-{shard}"
        self._journal_path = self._state / f"finished-{shard}.jsonl"
        self._journal: IO[bytes] | None = None
        self._numbers = itertools.count()
        self._lock = threading.Lock()

    def prepare(self, items: list[InputObject]) -> None:
        """Raise SettingsError if the folder can't be written, or if a key can't be a path below it.

        What killed runs and lost nodes left is deleted, unless they are alive.
        """
        check_writable(self._folder, "output")
        own = self._growing.name
        for growing in (*self._state.glob(own), *self._state.glob(f"{own}-*")):
            with contextlib.suppress(SettingsError):
                LocalTarget(self._folder, growing.name.removeprefix("growing-")).lock_journal().close()
        for item in items:
            parts = (item.name + OUT).split("/")
            if any(part in {"", ".", ".."} or "\0" in part for part in parts):
                raise SettingsError(f"The key {item.name!r} can't be a local path: give an s3:// output.")
            if any(len(os.fsencode(part)) > MAX_NAME_BYTES for part in parts):
                raise SettingsError(
                    f"The key {item.name!r} is too long for a local file: give an s3:// output."
                )

    def finished(self, fingerprint: str) -> dict[str, str]:
        """Names and versions of the objects that a job of this ``fingerprint`` finished.

        The journals of all shards have them; outputs that were deleted since do not count.
        """
        finished: dict[str, str] = {}
        for journal in self._state.glob("finished-*.jsonl"):
            for line in journal.read_bytes().splitlines():
                # A run that is killed while it writes leaves half a line.
                with contextlib.suppress(ValueError):
                    entry = json.loads(line)
                    if entry.get("fingerprint") == fingerprint and self._path(entry["name"], OUT).is_file():
                        finished[entry["name"]] = entry["version"]
        return finished

    def create(self, item: InputObject, ending: str, fingerprint: str) -> "LocalSink":
        """Begin the output of ``item`` (``ending`` OUT) or its error file (ERRORS).

        Commit of an output records ``item`` as finished for ``fingerprint``. Raises StorageError, and
        SettingsError if another run writes there.
        """
        with self._lock:
            if self._journal is None:
                self._journal = self.lock_journal()
        journal = self._journal
        entry = {"fingerprint": fingerprint, "name": item.name, "version": item.version}
        record = json.dumps(entry).encode() + b"\n" if ending == OUT else b""
        growing = self._growing / str(next(self._numbers))
        return LocalSink(growing, self._path(item.name, ending), lambda: journal.write(record))

    def remove(self, name: str, ending: str) -> None:
        """Delete an earlier run's ``name`` + ``ending``, if there is one. Raises StorageError."""
        path = self._path(name, ending)
        with _disk_errors(path):
            path.unlink(missing_ok=True)

    def lock_journal(self) -> "IO[bytes]":
        """Open the journal for this process alone, and delete what an earlier one left."""
        try:
            self._state.mkdir(parents=True, exist_ok=True)
            journal = self._journal_path.open("ab", buffering=0)
            fcntl.flock(journal, fcntl.LOCK_EX | fcntl.LOCK_NB)  # the lock lasts until this process ends
            shutil.rmtree(self._growing, ignore_errors=True)
            self._growing.mkdir()
            journal.write(b"\n")  # ends half a line that a killed run may have left
        except BlockingIOError as error:
            raise SettingsError(
                f"Another run is writing to the output {self._folder}: wait for it, or give another folder."
            ) from error
        except OSError as error:
            raise SettingsError(f"The output {self._folder} can't be written: {error.strerror}.") from error
        else:
            return journal

    def _path(self, name: str, ending: str) -> Path:
        return self._folder.joinpath(*(name + ending).split("/"))


def check_writable(path: Path, what: str) -> None:
    """Raise SettingsError if ``path``, which need not exist, can't be created or written to."""
    existing = next(parent for parent in (path, *path.resolve().parents) if parent.exists())
    if not os.access(existing, os.W_OK) or (existing != path and not existing.is_dir()):
        is_denied = existing.is_dir() or existing == path
        reason = f"this user may not write to {existing}" if is_denied else f"{existing} is not a folder"
        raise SettingsError(f"The {what} {path} can't be written: {reason}.")


class LocalSink:
    """One output file: `commit` makes all of it visible, `abort` none, which never raises StorageError."""

    def __init__(self, growing: Path, final: Path, on_commit: Callable[[], object]) -> None:
        self._growing = growing
        self._final = final
        self._on_commit = on_commit
        with _disk_errors(final):
            self._file = growing.open("wb")

    def write(self, data: bytes) -> None:
        with _disk_errors(self._final):
            self._file.write(data)

    def commit(self) -> None:
        with _disk_errors(self._final):
            self._file.close()
            self._final.parent.mkdir(parents=True, exist_ok=True)
            self._growing.replace(self._final)
            self._on_commit()

    def abort(self) -> None:
        with contextlib.suppress(OSError):
            self._file.close()
        with contextlib.suppress(OSError):
            self._growing.unlink()


@contextlib.contextmanager
def _disk_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StorageError(f"{path} can't be written: {error.strerror}") from error
