"""Files of fixed size that a worker writes in place, and others read: its journal and its table of stages.

A note of the journal is a byte that says whether the request has ended, and the request's id.
"""

import logging
import mmap
import os
from contextlib import suppress
from pathlib import Path

log = logging.getLogger(__name__)

ID_BYTES = 32
NOTE_BYTES = 1 + ID_BYTES
ENDED, BEGUN = 0, 1


class FixedFile:
    """File of ``size`` bytes in ``memory``, all zero at first.

    Its blocks are allocated at once: writing into a hole of a full disk would end the process by SIGBUS.
    If there is no room, ``problem`` says so, and memory of the process's own takes the file's place, which
    nobody else can read, until a `make` works.
    """

    def __init__(self, path: Path, size: int) -> None:
        self.memory = mmap.mmap(-1, size)
        self.problem = ""
        self._path, self._size = path, size
        self.make()
        if self.problem:
            log.warning("%s, so nothing is counted there", self.problem)

    def make(self) -> None:
        """Make the file, with what its memory has now."""
        try:
            self._path.parent.mkdir(exist_ok=True)
            with self._path.open("wb+") as file:
                os.posix_fallocate(file.fileno(), 0, self._size)
                memory = mmap.mmap(file.fileno(), self._size)
        except OSError as error:
            with suppress(OSError):
                self._path.unlink()
            self.problem = f"a worker's file in {self._path.parent.name} can't be written: {error.strerror}"
        else:
            memory[:] = self.memory[:]
            self.memory, self.problem = memory, ""


def under_way(record: Path) -> int:
    """Number of requests in flight by a worker's record; 0 if there is no record."""
    try:
        return record.read_bytes()[::NOTE_BYTES].count(BEGUN)
    except FileNotFoundError:
        return 0
