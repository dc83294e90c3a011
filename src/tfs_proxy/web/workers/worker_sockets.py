"""Which of gunicorn's sockets is a worker's own, so that nginx can distribute requests among workers."""

import fcntl
from collections.abc import Sequence
from io import FileIO
from pathlib import Path
from typing import TypeVar

Listener = TypeVar("Listener")


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

    def leave(self) -> None:
        """Let another worker take the socket, while this one still accepts there; idempotent."""
        if self._taken is not None:
            fcntl.lockf(self._file, fcntl.LOCK_UN, 1, self._taken)
            self._taken = None
