"""The output of a child: a pipe that the supervisor reads, line by line and event by event.

It is read as it comes, and only the incomplete line and event are kept: a child that prints faster than that
waits, or loses lines if it prefers to.
"""

import asyncio
import fcntl
import os
from collections.abc import Callable, Sequence
from contextlib import suppress

from tfs_proxy.observe.logs.foreign import EventLines

READ_BYTES = 16 * 1024
"""Read at a time, so that one child that prints without end does not keep the supervisor from others."""

MOST_LINE_BYTES = 64 * 1024
"""A longer line is split."""

PIPE_BYTES = 1024 * 1024
PAUSE_SECONDS = 0.05
"""An event is complete after so long without a further line."""

MOST_RESTS = 256


class ChildOutput:
    """One pipe for all lives of a child: ``hear`` gets each line at once, ``show`` the lines of each event.

    With ``drops`` the child never waits. If each of its ``lines_are_events``, none waits for further lines.
    `open` and the rest are called in the event loop.
    """

    def __init__(
        self,
        hear: Callable[[str], None],
        show: Callable[[Sequence[str]], None],
        *,
        drops: bool = False,
        lines_are_events: bool = False,
    ) -> None:
        self._hear, self._show, self._drops = hear, show, drops
        self._events = EventLines(indented_goes_on=not lines_are_events)
        self._partial = b""
        self._ends: tuple[int, int] | None = None
        self._pause: asyncio.TimerHandle | None = None

    def open(self) -> int:
        """Returns the end that a child writes to."""
        if self._ends is None:
            read_end, write_end = self._ends = os.pipe()
            os.set_blocking(read_end, False)
            os.set_blocking(write_end, not self._drops)
            with suppress(AttributeError, OSError):  # not on Linux, or more than a user may have
                fcntl.fcntl(write_end, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
            asyncio.get_running_loop().add_reader(read_end, self._read)
        return self._ends[1]

    def read_on(self) -> None:
        """Reads what is there now, up to a limit."""
        for _ in range(MOST_RESTS):
            if not self._read():
                break

    def read_rest(self) -> None:
        """Reads what is there, after the child's end; processes that it has left behind may write on."""
        self.read_on()
        if self._partial:
            self._take(self._partial)
            self._partial = b""
        self._finish()

    def close(self) -> None:
        if self._ends is None:
            return
        self.read_rest()
        read_end, write_end = self._ends
        self._ends = None
        asyncio.get_running_loop().remove_reader(read_end)
        os.close(read_end)
        os.close(write_end)

    def _read(self) -> bool:
        """Reads up to a limit; True if there was anything."""
        if self._ends is None:
            return False
        try:
            data = os.read(self._ends[0], READ_BYTES)
        except BlockingIOError:
            return False
        *lines, self._partial = (self._partial + data).split(b"\n")
        for line in lines:
            self._take(line)
        if len(self._partial) > MOST_LINE_BYTES:
            self._take(self._partial)
            self._partial = b""
        self._finish_soon()
        return bool(data)

    def _take(self, raw: bytes) -> None:
        line = raw.decode(errors="replace").rstrip()
        self._hear(line)
        for event in self._events.add(line):
            self._show(event)

    def _finish_soon(self) -> None:
        if self._pause is not None:
            self._pause.cancel()
        self._pause = asyncio.get_running_loop().call_later(PAUSE_SECONDS, self._finish)

    def _finish(self) -> None:
        for event in self._events.rest():
            self._show(event)
