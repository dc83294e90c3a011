"""Files of records in a folder; each line is written at once, whole or not at all."""

import contextlib
import os
import random
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Protocol
from uuid import uuid4

from msgspec import Struct

from tfs_proxy.observe import catalogue
from tfs_proxy.observe.metric import MeasuredMetric, Points
from tfs_proxy.settings.settings import Settings
from tfs_proxy.values.deployment import CaptureOptions
from tfs_proxy.values.errors import SettingsError
from tfs_proxy.values.memory import MEGABYTE
from tfs_proxy.values.names import is_model_name


class CaptureFailed(Exception):
    """Records could not be written: how many are lost, and why."""

    def __init__(self, records: int, reason: str) -> None:
        super().__init__(reason)
        self.records = records


class CaptureFile(Protocol):
    """File that grows. Its methods raise CaptureFailed."""

    @property
    def size(self) -> int:
        """Return the number of bytes so far."""

    @property
    def unsaved(self) -> int:
        """Return the number of lines that would be lost with the process."""

    def append(self, line: bytes) -> int:
        """Add a line; returns the number of lines that are safe since the last call."""

    def close(self) -> int:
        """Complete the file; returns the number of lines that are safe since the last call."""


class CaptureStore(Protocol):
    """Place of files."""

    def create(self, path: str) -> CaptureFile:
        """Create a file at ``path`` below the target. Raises CaptureFailed."""


class Folder(Struct, frozen=True):
    """Folder of files."""

    root: Path

    def create(self, path: str) -> "FolderFile":
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
        try:
            _write_all(self._descriptor, line)
        except OSError as error:
            with contextlib.suppress(OSError):
                os.ftruncate(self._descriptor, self.size)
            raise CaptureFailed(1, f"{self._path.parent} can't be written: {error.strerror}") from error
        self.size += len(line)
        return 1

    def close(self) -> int:
        """Close the file, or remove an empty one. A network's file system may refuse only now."""
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


S3, UNNAMED = "s3://", "model"


def capture_options(settings: Settings, model: str) -> CaptureOptions | None:
    """Read the options of data capture; None if it is off. ``model`` names the folder if no setting does."""
    target = settings.capture_target
    if target is None or not settings.capture_percent:
        return None
    return CaptureOptions(
        target if target.startswith(S3) else str(Path(target).absolute()),
        settings.capture_name or _folder_name(model),
        settings.capture_percent,
        settings.capture_max_mb * MEGABYTE,
        keeps_input="input" in settings.capture_keeps,
        keeps_output="output" in settings.capture_keeps,
    )


def is_chosen(options: CaptureOptions, share: Callable[[], float] = random.random) -> bool:
    """Decide at random if one more request is captured."""
    return 100 * share() < options.percent


def _folder_name(model: str) -> str:
    """Replace characters of ``model`` that a folder's name can't have: a flag may give a model any name."""
    name = re.sub(r"[^A-Za-z0-9._-]", "_", model)
    return name if is_model_name(name) else UNNAMED


def described(options: CaptureOptions) -> str:
    """Sentence for the log of a start: people's data are kept, so whoever runs this should know."""
    target = f"{options.target.rstrip('/')}/{options.name}"
    return f"capturing {options.percent:g} % of the requests to /invocations into {target}"


FILE_SECONDS = 60.0
"""Age at which a file is complete: S3 lacks the records since then."""


class RotatingFiles:
    """Files of one process, below ``folder``; a file is complete if it is large or old, or the hour ends."""

    def __init__(self, store: CaptureStore, folder: str, max_bytes: int) -> None:
        self._store = store
        self._folder = folder
        self._max_bytes = max_bytes
        self._file: CaptureFile | None = None
        self._hour = ""
        self._began_at = 0.0

    @property
    def is_open(self) -> bool:
        """True if a file is not complete."""
        return self._file is not None

    @property
    def unsaved(self) -> int:
        return 0 if self._file is None else self._file.unsaved

    def complete_before(self, line: bytes, now: float) -> int:
        """Complete the file if ``line`` belongs into another; returns the number of lines made safe."""
        full = self._file is not None and self._file.size + len(line) > self._max_bytes
        return self.close() if full or _hour(now) != self._hour else self.complete_old(now)

    def complete_old(self, now: float) -> int:
        """Complete the file if it is old; returns the number of lines made safe."""
        return self.close() if not 0 <= now - self._began_at < FILE_SECONDS else 0

    def append(self, line: bytes, now: float) -> int:
        """Add a line; returns the number of lines made safe. Raises CaptureFailed."""
        if self._file is None:
            self._hour, self._began_at = _hour(now), now
            self._file = self._store.create(f"{self._folder}/{self._hour}/{_name(now)}")
        return self._file.append(line)

    def close(self) -> int:
        """Complete the file; returns the number of lines made safe. Raises CaptureFailed."""
        if self._file is None:
            return 0
        try:
            return self._file.close()
        finally:
            self._file = None


def _hour(now: float) -> str:
    return time.strftime("%Y/%m/%d/%H", time.gmtime(now))


def _name(now: float) -> str:
    """File name: minute, second and millisecond, as SageMaker has it, and a unique part."""
    return f"{time.strftime('%M-%S', time.gmtime(now))}-{int(now * 1000) % 1000:03}-{uuid4()}.jsonl"


class CaptureOutcome(StrEnum):
    """Outcomes of a record, as values of a label."""

    WRITTEN = "written"
    DROPPED = "dropped"
    TOO_LARGE = "too_large"


Counts = Mapping[CaptureOutcome, int]


class CaptureCounter:
    """Counts of a run's records by outcome; they only grow."""

    def __init__(self) -> None:
        self._counts: Counter[CaptureOutcome] = Counter()

    def add(self, counts: Counts) -> None:
        """Add counts of more records."""
        self._counts.update(counts)

    def measure(self) -> Iterator[MeasuredMetric]:
        yield measured(self._counts)


def measured(counts: Counts) -> MeasuredMetric:
    points: Points = {(outcome.value,): counts.get(outcome, 0) for outcome in CaptureOutcome}
    return MeasuredMetric(catalogue.CAPTURE_RECORDS, points)
