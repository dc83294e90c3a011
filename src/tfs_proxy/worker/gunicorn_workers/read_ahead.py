"""Reading of a connection by a thread of its own, as fast as its client sends.

Once an answer has begun, nginx never again passes on what a worker did not take at once: a script that is
slower than its client would wait for ever.
"""

import select
import socket
from contextlib import suppress
from tempfile import SpooledTemporaryFile
from threading import Condition, Thread

from tfs_proxy.settings.worker_environment import folder_for_files
from tfs_proxy.values.memory import MEGABYTE

HELD_BYTES = MEGABYTE
"""Size from which on what waits for a script, or for a client, is in a file."""

RECEIVED_BYTES = 4 * MEGABYTE
"""Most bytes that are taken at once: a busy script lets this thread run only every few milliseconds."""

END_SECONDS = 2.0
"""Time in which the rest of a body is dropped, so that its client sees the end of the answer."""


def waiting_file() -> "SpooledTemporaryFile[bytes]":
    """Make a file for what waits: in memory as long as it is small, then in the run's folder."""
    return SpooledTemporaryFile(HELD_BYTES, dir=folder_for_files())


def is_silent(connection: socket.socket, seconds: float) -> bool:
    """True if nothing can be read from a connection for so long."""
    poll = select.poll()
    poll.register(connection, select.POLLIN)
    return not poll.poll(1000 * seconds)


class ReadAhead:
    """Receiving half of ``connection``: what nobody has asked for yet waits in a file.

    Whoever asks waits for ``seconds`` at most, then it is a TimeoutError.
    """

    def __init__(self, connection: socket.socket, seconds: float) -> None:
        self._connection, self._seconds = connection, seconds
        self._changed = Condition()
        self._file = waiting_file()
        self._read = self._written = 0
        self._is_over = self._is_dropping = False
        self._thread = Thread(target=self._run, name="read-ahead", daemon=True)
        self._thread.start()

    def recv(self, most_bytes: int) -> bytes:
        """Read what has come, as a socket does."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._read < self._written or self._is_over, self._seconds):
                raise TimeoutError
            self._file.seek(self._read)
            piece = self._file.read(most_bytes)
            self._read += len(piece)
            if self._read == self._written:
                self._file.seek(0)
                self._file.truncate()
                self._read = self._written = 0
            return piece

    def end(self, *, at_once: bool) -> None:
        """Stop to read; unless ``at_once`` the rest may come for `END_SECONDS`, and is dropped."""
        self._is_dropping = True
        self._thread.join(0 if at_once else END_SECONDS)
        with suppress(OSError):
            if self._thread.is_alive():
                self._connection.shutdown(socket.SHUT_RD)
        self._thread.join(END_SECONDS)
        self._file.close()

    def _run(self) -> None:
        with suppress(OSError):
            while piece := self._connection.recv(RECEIVED_BYTES):
                if not self._is_dropping:
                    self._keep(piece)
        with self._changed:
            self._is_over = True
            self._changed.notify_all()

    def _keep(self, piece: bytes) -> None:
        with self._changed:
            self._file.seek(self._written)
            self._written += self._file.write(piece)
            self._changed.notify_all()
