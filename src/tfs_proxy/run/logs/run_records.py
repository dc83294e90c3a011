"""The records of a run's requests, however many models it serves: its counts, and its log.

nginx, or the workers without it, append to one file. A short line tells of each request, for the counts; one
with an id tells of a request that is logged.
"""

import asyncio
import os
from collections import deque
from collections.abc import Iterator, Mapping

from tfs_proxy.observe.line_file import LineReader
from tfs_proxy.observe.logs.access import RequestLine, RequestLog, read_access_line
from tfs_proxy.observe.logs.entry import (
    COMMAND,
    STDERR,
    EntryHandler,
    LogConfig,
    entry_handler,
    wants_colour,
)
from tfs_proxy.observe.logs.foreign import NGINX
from tfs_proxy.observe.metric import MeasuredMetric
from tfs_proxy.observe.request_counts import FinishedRequest, KnownModels, RequestCounts
from tfs_proxy.observe.stage_counts import StageCounts
from tfs_proxy.settings.settings import Settings
from tfs_proxy.values.layout import Workspace

MOST_SHOWN = 1000
"""Requests that are logged between two looks at the processes: `/ping` waits meanwhile."""

READ_PAUSE_SECONDS = 0.05


class RunRecords:
    """``counts`` has every request whose line has been read, ``stages`` what workers report.

    ``log`` is the logging of all processes.
    """

    def __init__(
        self,
        settings: Settings,
        environ: Mapping[str, str],
        workspace: Workspace,
        handler: EntryHandler | None = None,
    ) -> None:
        descriptor = os.dup(STDERR)
        self.log = LogConfig(settings.log_format, wants_colour(descriptor, environ), descriptor)
        self.counts, self.stages = RequestCounts(), StageCounts()
        self._lines = LineReader(workspace.requests)
        self._unshown: deque[bytes] = deque()
        self._request_log = RequestLog(settings.access_log, handler or entry_handler())

    def expect(self, known: KnownModels) -> None:
        """From here on, these are the models of the run; counts stay, except for models that have gone."""
        self._count()
        for gone in self.counts.expect(known):
            self.stages.forget(gone)
        self.stages.follow(known.versions)

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

    def note_early(self, request: FinishedRequest, request_id: str) -> None:
        """Counts and logs a request that is answered before workers can."""
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
