"""A file of lines by which processes of a run tell another one what they do.

Each appends a line by one ``write``, which the kernel keeps whole, and one reads: no line is lost, and nobody
waits. The reader gives lines back to the disk by a hole in the file; if that can't be done it grows.
"""

import ctypes
import os
from collections.abc import Callable, Iterator
from pathlib import Path

CHUNK_BYTES = 256 * 1024
MOST_CHUNKS = 64
"""Chunks that one call reads at most; the next call reads on."""

HOLE_BYTES = 1024 * 1024
_BLOCK_BYTES = 4096
_KEEP_SIZE = 1
_PUNCH_HOLE = 2


def appending(path: Path) -> int:
    """Descriptor of a file of lines, for any number of threads and processes."""
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)


class LineReader:
    """Reader of the whole lines that were appended since the last read."""

    def __init__(self, path: Path, make_hole: Callable[[int, int, int], None] | None = None) -> None:
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._make_hole = make_hole or punch_hole
        self._offset = self._hole_end = 0
        self._rest = b""

    def chunks(self) -> Iterator[bytes]:
        """Read whole lines, some at a time."""
        for _ in range(MOST_CHUNKS):
            read = os.pread(self._descriptor, CHUNK_BYTES, self._offset)
            if not read:
                return
            self._offset += len(read)
            self._free_what_was_read()
            lines, end, rest = read.rpartition(b"\n")
            if end:
                yield self._rest + lines
                self._rest = rest
            else:
                self._rest += rest

    def close(self) -> None:
        os.close(self._descriptor)

    def _free_what_was_read(self) -> None:
        end = self._offset // _BLOCK_BYTES * _BLOCK_BYTES
        if end - self._hole_end >= HOLE_BYTES:
            self._make_hole(self._descriptor, self._hole_end, end - self._hole_end)
            self._hole_end = end


def punch_hole(descriptor: int, offset: int, length: int) -> None:
    """Give a part of a file back to the disk, on Linux and where the file system can."""
    fallocate = getattr(ctypes.CDLL(None), "fallocate", None)
    if fallocate is not None:
        fallocate(descriptor, _KEEP_SIZE | _PUNCH_HOLE, ctypes.c_int64(offset), ctypes.c_int64(length))
