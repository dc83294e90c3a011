"""What a process prints, from its pipe: whoever asks gets all that is there, whether or not a thread was quick."""

import os
import select
import threading
from typing import IO

READ_BYTES = 65536
READ_SECONDS = 30.0


class Printed:
    """Reads ``pipe`` in a thread of its own, so that the process never waits, and again whenever it is asked."""

    def __init__(self, pipe: IO[bytes]) -> None:
        self._pipe = pipe
        os.set_blocking(pipe.fileno(), False)
        self._lock = threading.Lock()
        self._taken = bytearray()
        self._ended = False
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    @property
    def text(self) -> str:
        """All whole lines so far; at the end of the pipe also what has no end of line."""
        with self._lock:
            self._take()
            end = len(self._taken) if self._ended else self._taken.rfind(b"\n") + 1
            return self._taken[:end].decode(errors="replace")

    def wait_for_end(self) -> bool:
        """Wait until nobody holds the pipe's other end; whether that came in time."""
        self._thread.join(READ_SECONDS)
        return not self._thread.is_alive()

    def close(self) -> None:
        """Close the pipe, which has ended."""
        self._pipe.close()

    def _follow(self) -> None:
        pipe = select.poll()
        pipe.register(self._pipe, select.POLLIN)
        while not self._ended:
            pipe.poll()
            with self._lock:
                self._take()

    def _take(self) -> None:
        """Take what is there."""
        while not self._ended:
            try:
                part = os.read(self._pipe.fileno(), READ_BYTES)
            except BlockingIOError:
                return
            self._taken += part
            self._ended = not part
