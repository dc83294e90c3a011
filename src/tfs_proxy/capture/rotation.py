"""One file after the other, below ENDPOINT/VARIANT/YYYY/MM/DD/HH/ as SageMaker lays them out."""

import time
from uuid import uuid4

from tfs_proxy.capture.files import CaptureFile, CaptureStore

FILE_SECONDS = 60.0
"""After what time a file is complete: so old are the newest records that S3 lacks."""


class RotatingFiles:
    """Lines of one process, below ``folder``; a file is complete if it is large or old, or the hour ends."""

    def __init__(self, store: CaptureStore, folder: str, max_bytes: int) -> None:
        self._store = store
        self._folder = folder
        self._max_bytes = max_bytes
        self._file: CaptureFile | None = None
        self._hour = ""
        self._began_at = 0.0

    @property
    def is_open(self) -> bool:
        """Whether a file is not complete."""
        return self._file is not None

    @property
    def unsaved(self) -> int:
        """Lines that would be lost with the process."""
        return 0 if self._file is None else self._file.unsaved

    def complete_before(self, line: bytes, now: float) -> int:
        """Complete the file if ``line`` belongs into another; how many lines are safe by that."""
        full = self._file is not None and self._file.size + len(line) > self._max_bytes
        return self.close() if full or _hour(now) != self._hour else self.complete_old(now)

    def complete_old(self, now: float) -> int:
        """Complete the file if it is old; how many lines are safe by that."""
        return self.close() if not 0 <= now - self._began_at < FILE_SECONDS else 0

    def append(self, line: bytes, now: float) -> int:
        """Add a line; how many lines are safe by that. Raises CaptureFailed."""
        if self._file is None:
            self._hour, self._began_at = _hour(now), now
            self._file = self._store.create(f"{self._folder}/{self._hour}/{_name(now)}")
        return self._file.append(line)

    def close(self) -> int:
        """Complete the file; how many lines are safe by that. Raises CaptureFailed."""
        if self._file is None:
            return 0
        try:
            return self._file.close()
        finally:
            self._file = None


def _hour(now: float) -> str:
    return time.strftime("%Y/%m/%d/%H", time.gmtime(now))


def _name(now: float) -> str:
    """Minute, second and millisecond, as SageMaker has it, and what makes it unique."""
    return f"{time.strftime('%M-%S', time.gmtime(now))}-{int(now * 1000) % 1000:03}-{uuid4()}.jsonl"
