"""The log of a run: what its children print, and its requests, which it also counts.

A child's pipe is read as it comes, and only an incomplete line or traceback is kept: a child that prints
faster than that waits, or loses lines if it prefers to. nginx, or the workers without it, append to one file:
a short line tells of each request, for the counts; one with an id tells of a request that is logged.
"""

import asyncio
import codecs
import fcntl
import logging
import os
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress

from tfs_proxy.observe.line_file import LineReader
from tfs_proxy.observe.logs.access import RequestLine, RequestLog, read_access_line
from tfs_proxy.observe.logs.entry import (
    COMMAND,
    STDERR,
    LogConfig,
    entry_handler,
    wants_colour,
)
from tfs_proxy.observe.logs.foreign import NGINX, read_event
from tfs_proxy.observe.logs.printed import Printed
from tfs_proxy.observe.metric import MeasuredMetric
from tfs_proxy.observe.request_counts import FinishedRequest, KnownModels, RequestCounts
from tfs_proxy.observe.stage_counts import StageCounts
from tfs_proxy.settings.settings import Settings
from tfs_proxy.values.layout import Workspace

READ_BYTES = 16 * 1024
"""Read at a time, so that one child that prints without end does not keep the supervisor from others."""

MOST_LINE_CHARACTERS = 64 * 1024
"""A longer line is split."""

PIPE_BYTES = 1024 * 1024
MOST_RESTS = 256

MOST_SHOWN = 1000
"""Requests that are logged between two looks at the processes: `/ping` waits meanwhile."""

READ_PAUSE_SECONDS = 0.05


class ChildOutput:
    """One pipe for all lives of a child: ``hear`` gets each line, or the lines of a traceback.

    With ``drops`` the child never waits. All methods are called in the event loop.
    """

    def __init__(self, hear: Callable[[list[str]], None], *, drops: bool = False) -> None:
        self._hear = hear
        self._drops = drops
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
            self._hear(event)


Show = Callable[[str, int | None, list[str]], None]
"""Logs what a child of this name and pid has printed: a line, or those of a traceback."""


def log_event(process: str, pid: int | None, lines: list[str]) -> None:
    """Logs what a child has printed, whatever the log's level, but for what only its authors read."""
    entry = read_event(lines, process, pid)
    if entry.message and (entry.level != "debug" or logging.getLogger().isEnabledFor(logging.DEBUG)):
        entry_handler().write(entry)


class RunRecords:
    """``counts`` has every request whose line has been read, ``stages`` what workers report.

    ``log`` is the logging of all processes.
    """

    def __init__(self, settings: Settings, environ: Mapping[str, str], workspace: Workspace) -> None:
        descriptor = os.dup(STDERR)
        self.log = LogConfig(settings.log_format, wants_colour(descriptor, environ), descriptor)
        self.counts = RequestCounts()
        self.stages = StageCounts()
        self._lines = LineReader(workspace.requests)
        self._unshown: deque[bytes] = deque()
        self._request_log = RequestLog(settings.access_log)

    def set_models(self, known: KnownModels) -> None:
        """From here on, these are the models of the run; counts stay, except for models that have gone."""
        self._count()
        for gone in self.counts.set_models(known):
            self.stages.forget(gone)
        self.stages.set_models(known.versions)

    def forget(self, model: str) -> None:
        """Counts the requests of a removed model so far, and drops its series."""
        self._count()
        if self.counts.models is not None:
            self.counts.models.remove_model(model)
        self.stages.forget(model)

    def measure(self) -> Iterator[MeasuredMetric]:
        self._count()
        yield from self.counts.measure()
        yield from self.stages.measure()

    def note(self, request: FinishedRequest, request_id: str) -> None:
        """Counts and logs a request that this process answers without nginx."""
        self.counts.add(request)
        self._request_log.show(RequestLine(request, request_id), COMMAND)

    def read(self) -> bool:
        """Counts and logs what has been written; True if there was anything new, or something still waits."""
        is_busy = not self._unshown and self._count()
        self._show(MOST_SHOWN)
        return is_busy or bool(self._unshown)

    async def keep_reading(self) -> None:
        """Reads often; never returns."""
        while True:
            self.read()
            await asyncio.sleep(READ_PAUSE_SECONDS)

    def close(self) -> None:
        """Shows what is left, and closes the files."""
        while self._count() or self._unshown:
            self._show(len(self._unshown))
        self._lines.close()
        os.close(self.log.descriptor)

    def _count(self) -> bool:
        """Counts new lines, but shows none yet; True if there were any."""
        found = False
        for chunk in self._lines.chunks():
            self._unshown += self.counts.add_lines(chunk)
            found = True
        return found

    def _show(self, most: int) -> None:
        for _ in range(min(most, len(self._unshown))):
            line = read_access_line(self._unshown.popleft())
            if line is not None:
                self._request_log.show(line, NGINX)
