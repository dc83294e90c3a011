"""Notes of the requests that a worker has begun, in a file that outlives it, so that none is run twice.

A note is a byte that says whether the request has ended, and the id that nginx gave it. The notes of all
workers of a run lie in one folder.
"""

import logging
import mmap
import os
from collections import deque
from contextlib import suppress
from pathlib import Path

from tfs_proxy.values.processes import has_ended

log = logging.getLogger(__name__)

ID_BYTES = 32
NOTE_BYTES = 1 + ID_BYTES
ENDED = 0
BEGUN = 1
_NO_ID = b" " * ID_BYTES

KEPT_FILES = 64
"""Files of dead workers to keep. nginx repeats a request as soon as a worker is gone."""


class BegunRequests:
    """Notes of this process, in ``folder``, of which at most ``most`` requests may be in flight at once.

    Offsets are used in turn, so a note stays readable for a long time after the request's end. The file's
    blocks are allocated at once: writing into a hole of a full disk would end the process by SIGBUS. If there
    is no room, memory of the process's own takes the file's place until there is.
    """

    def __init__(self, folder: Path, most: int) -> None:
        self._path = folder / str(os.getpid())
        self._notes = mmap.mmap(-1, most * NOTE_BYTES)
        self._free = deque(range(0, most * NOTE_BYTES, NOTE_BYTES))
        self._problem = "not made"
        if self.problem():
            log.warning("%s, so what this worker has begun is not known if it dies", self._problem)

    def problem(self) -> str:
        """Reason why others can't read the notes, after another attempt to write them; empty without."""
        if self._problem:
            try:
                self._path.parent.mkdir(exist_ok=True)
                with self._path.open("wb+") as file:
                    os.posix_fallocate(file.fileno(), 0, len(self._notes))
                    notes = mmap.mmap(file.fileno(), len(self._notes))
            except OSError as error:
                self._path.unlink(missing_ok=True)
                self._problem = (
                    f"a worker's file in {self._path.parent.name} can't be written: {error.strerror}"
                )
            else:
                notes[:] = self._notes[:]
                self._notes = notes
                self._problem = ""
        return self._problem

    def begin(self, nginx_id: str) -> int:
        """Note that a request begins; returns the offset of the note in the file."""
        offset = self._free.popleft()
        name = nginx_id.encode("latin-1") if len(nginx_id) == ID_BYTES else _NO_ID
        self._notes[offset : offset + NOTE_BYTES] = bytes((BEGUN,)) + name
        return offset

    def end(self, offset: int) -> None:
        self._notes[offset] = ENDED
        self._free.append(offset)

    def has(self, nginx_id: str) -> bool:
        """True if any worker, dead ones included, has begun this request."""
        name = nginx_id.encode("latin-1")
        folder = self._path.parent
        return len(name) == ID_BYTES and any(name in _read(notes) for notes in folder.iterdir())

    def close(self) -> None:
        """Remove the file of a worker that ends, unless one of its requests has not ended."""
        if BEGUN not in self._notes[::NOTE_BYTES]:
            self._path.unlink(missing_ok=True)


def under_way(notes: Path) -> int:
    """Number of requests in flight by a worker's notes; 0 if there are none."""
    return _read(notes)[::NOTE_BYTES].count(BEGUN)


def all_under_way(folder: Path) -> int:
    """Number of requests in flight by the notes of all workers that live."""
    return sum(under_way(notes) for notes in folder.glob("*") if not has_ended(int(notes.name)))


def _read(notes: Path) -> bytes:
    try:
        return notes.read_bytes()
    except FileNotFoundError:
        return b""


def forget_old(folder: Path, pid: int) -> None:
    """Remove the oldest notes of workers that have ended, as the one with ``pid`` has now."""
    with suppress(FileNotFoundError):
        os.utime(folder / str(pid))
        dead = [notes for notes in folder.iterdir() if has_ended(int(notes.name))]
        dead.sort(key=lambda notes: notes.stat().st_mtime_ns)
        for notes in dead[:-KEPT_FILES]:
            notes.unlink()
