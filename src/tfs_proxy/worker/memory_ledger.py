"""Limits the memory of large requests in all workers together, by a shared file."""

import fcntl
import os
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tfs_proxy.values.errors import Overloaded
from tfs_proxy.values.processes import has_ended

WAIT_SECONDS = 5.0
LOOK_SECONDS = 0.05
_SLOT = struct.Struct("=qq")


class MemoryLedger:
    """Table of bytes by process id in one file; bytes of a dead process are free.

    Used by all threads of a process; ``limit_bytes`` bounds the sum over all processes.
    """

    def __init__(self, path: Path, limit_bytes: int, wait_seconds: float = WAIT_SECONDS) -> None:
        self._path = path
        self._limit_bytes = limit_bytes
        self._wait_seconds = wait_seconds
        self._held = 0
        self._lock = threading.Lock()

    def reserve(self, size_bytes: int, is_wanted: Callable[[], bool] = lambda: True) -> None:
        """Wait for ``size_bytes`` while the request is wanted. Raises Overloaded if none become free."""
        deadline = time.monotonic() + self._wait_seconds
        while not self._try(size_bytes):
            if time.monotonic() >= deadline or not is_wanted():
                raise Overloaded(
                    "Other large requests are using the memory that this one needs: try again. "
                    "TFS_PROXY_MAX_DECODED_TOTAL_MB sets how much all together may take."
                )
            time.sleep(LOOK_SECONDS)

    def count(self, size_bytes: int) -> None:
        """Take ``size_bytes`` that a request under way can't do without, whatever others hold."""
        with self._table() as table:
            self._held += size_bytes
            table.write_own(self._held)

    def release(self, size_bytes: int) -> None:
        self.count(-size_bytes)

    def _try(self, size_bytes: int) -> bool:
        with self._table() as table:
            if table.others() + self._held + size_bytes > self._limit_bytes:
                return False
            self._held += size_bytes
            table.write_own(self._held)
            return True

    @contextmanager
    def _table(self) -> Iterator["_Table"]:
        """Lock the file against all other threads and processes."""
        with self._lock:
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX)
                yield _Table(descriptor)
            finally:
                os.close(descriptor)


class _Table:
    """Slots of the file: process id and bytes; a slot without a living process is free."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        content = os.pread(descriptor, os.fstat(descriptor).st_size, 0)
        whole = len(content) // _SLOT.size * _SLOT.size
        self._slots = list(_SLOT.iter_unpack(content[:whole]))

    def others(self) -> int:
        return sum(held for pid, held in self._slots if held and pid != os.getpid() and not has_ended(pid))

    def write_own(self, held: int) -> None:
        """Write this process's bytes into its slot or the first free one."""
        with suppress(OSError):  # on a full disk other processes don't see the bytes
            os.pwrite(self._descriptor, _SLOT.pack(os.getpid(), held), self._own_slot() * _SLOT.size)

    def _own_slot(self) -> int:
        pids = [pid for pid, _ in self._slots]
        if os.getpid() in pids:
            return pids.index(os.getpid())
        free = (index for index, pid in enumerate(pids) if has_ended(pid))
        return next(free, len(pids))
