"""Which of gunicorn's sockets is a worker's own, so that nginx can distribute requests among workers."""

import fcntl
import os
from collections.abc import Sequence
from io import FileIO
from pathlib import Path
from struct import Struct
from typing import TypeVar

Listener = TypeVar("Listener")

_FLOCK = Struct("hhqqi")
"""Linux' ``struct flock``: kind, whence, start, length and the process that has it."""


class WorkerSockets:
    """One byte of a file for each socket, locked by the worker that owns the socket.

    The kernel releases the lock when the worker ends, however that happens; processes that a script forks
    don't inherit it.
    """

    def __init__(self, path: Path) -> None:
        self._file = FileIO(path, "a+")
        self._taken: int | None = None

    def take(self, listeners: Sequence[Listener]) -> tuple[Sequence[Listener], Sequence[Listener]]:
        """The first socket that no worker owns, and the others; all of them if none is free."""
        for number, listener in enumerate(listeners):
            try:
                fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, number)
            except OSError:
                continue
            self._taken = number
            return [listener], [*listeners[:number], *listeners[number + 1 :]]
        return listeners, ()

    def unowned(self, count: int) -> Sequence[int]:
        """Which of the first ``count`` sockets no worker owns."""
        return [number for number in range(count) if number != self._taken and not self._is_locked(number)]

    def _is_locked(self, number: int) -> bool:
        """Whether another process has locked a socket's byte; unlike trying, asking keeps nobody from it."""
        asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, number, 1, 0)
        kind, *_ = _FLOCK.unpack(fcntl.fcntl(self._file, fcntl.F_GETLK, asked))
        return bool(kind != fcntl.F_UNLCK)

    def leave(self) -> None:
        """Let another worker take the socket, while this one still accepts there; idempotent."""
        if self._taken is not None:
            fcntl.lockf(self._file, fcntl.LOCK_UN, 1, self._taken)
            self._taken = None
