"""Limits the memory of large requests in all workers together, by a shared file."""

import os
import struct
import threading
import time
from contextlib import suppress
from pathlib import Path

from tfs_proxy.observe.request_record import require_client
from tfs_proxy.values.errors import Overloaded
from tfs_proxy.values.processes import has_ended

WAIT_SECONDS = 5.0
LOOK_SECONDS = 0.05
_SLOT = struct.Struct("=qq")


class MemoryLedger:
    """Table of bytes by process id in one file, whose slots are free once their process has ended.

    Used by all threads of a process; ``limit_bytes`` bounds the sum over all processes.
    """

    def __init__(self, path: Path, limit_bytes: int, wait_seconds: float = WAIT_SECONDS) -> None:
        self._path = path
        self._limit_bytes = limit_bytes
        self._wait_seconds = wait_seconds
        self._held = 0
        self._lock = threading.Lock()

    def reserve(self, size_bytes: int) -> None:
        """Wait for ``size_bytes``. Raises Overloaded if they don't become free, and ClientGone."""
        deadline = time.monotonic() + self._wait_seconds
        while not self._take(size_bytes, self._limit_bytes):
            require_client()
            if time.monotonic() >= deadline:
                raise Overloaded(
                    "Other large requests are using the memory that this one needs: try again. "
                    "TFS_PROXY_MAX_DECODED_TOTAL_MB sets how much all together may take."
                )
            time.sleep(LOOK_SECONDS)

    def count(self, size_bytes: int) -> None:
        """Take ``size_bytes`` that a request under way can't do without, whatever others hold."""
        self._take(size_bytes, None)

    def release(self, size_bytes: int) -> None:
        self.count(-size_bytes)

    def _take(self, size_bytes: int, limit_bytes: int | None) -> bool:
        """Change this process's bytes in the file; False if all processes would have more than the limit."""
        with self._lock:
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                os.lockf(descriptor, os.F_LOCK, 0)  # against all other processes
                content = os.pread(descriptor, os.fstat(descriptor).st_size, 0)
                slots = list(_SLOT.iter_unpack(content[: len(content) // _SLOT.size * _SLOT.size]))
                own = os.getpid()
                pids = [pid for pid, _ in slots]
                if limit_bytes is not None:
                    others = sum(held for pid, held in slots if held and pid != own and not has_ended(pid))
                    if others + self._held + size_bytes > limit_bytes:
                        return False
                self._held += size_bytes
                free = (index for index, pid in enumerate(pids) if has_ended(pid))
                slot = pids.index(own) if own in pids else next(free, len(pids))
                with suppress(OSError):  # on a full disk other processes don't see the bytes
                    os.pwrite(descriptor, _SLOT.pack(own, self._held), slot * _SLOT.size)
                return True
            finally:
                os.close(descriptor)
