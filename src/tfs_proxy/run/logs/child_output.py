"""The output of a child: a pipe that the supervisor reads, line by line, for the log.

It is read as it comes, and only an incomplete line or traceback is kept: a child that prints faster than that
waits, or loses lines if it prefers to.
"""

import asyncio
import codecs
import fcntl
import logging
import os
from collections.abc import Callable
from contextlib import suppress

from tfs_proxy.observe.logs.entry import entry_handler
from tfs_proxy.observe.logs.foreign import read_event
from tfs_proxy.observe.logs.printed import Printed

READ_BYTES = 16 * 1024
"""Read at a time, so that one child that prints without end does not keep the supervisor from others."""

MOST_LINE_CHARACTERS = 64 * 1024
"""A longer line is split."""

PIPE_BYTES = 1024 * 1024
MOST_RESTS = 256


class ChildOutput:
    """One pipe for all lives of a child: ``take`` gets each line, or the lines of a traceback.

    With ``drops`` the child never waits. All methods are called in the event loop.
    """

    def __init__(self, take: Callable[[list[str]], None], *, drops: bool = False) -> None:
        self._take_event, self._drops = take, drops
        self._printed = Printed(MOST_LINE_CHARACTERS)
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._ends: tuple[int, int] | None = None

    def write_end(self) -> int:
        """Returns the end that a child writes to."""
        if self._ends is None:
            read_end, write_end = self._ends = os.pipe()
            os.set_blocking(read_end, False)
            os.set_blocking(write_end, not self._drops)
            with suppress(AttributeError, OSError):  # not on Linux, or more than a user may have
                fcntl.fcntl(write_end, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
            asyncio.get_running_loop().add_reader(read_end, self._read)
        return self._ends[1]

    def read_rest(self) -> None:
        """Reads what is there, after the child's end; processes that it has left behind may write on."""
        for _ in range(MOST_RESTS):
            if not self._read():
                break
        self._tell(self._printed.rest())

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
        self._tell(self._printed.add(self._decode(data)))
        return bool(data)

    def _tell(self, events: list[list[str]]) -> None:
        for event in events:
            self._take_event(event)


def log_event(process: str, pid: int | None, lines: list[str]) -> None:
    """Logs what a child has printed, whatever the log's level, but for what only its authors read."""
    entry = read_event(lines, process, pid)
    if entry.message and (entry.level != "debug" or logging.getLogger().isEnabledFor(logging.DEBUG)):
        entry_handler().write(entry)
