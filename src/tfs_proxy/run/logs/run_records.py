"""The records of a run's requests, however many models it serves: its log, and its counts."""

import asyncio
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from tfs_proxy.observe.logs.access import RequestLine
from tfs_proxy.observe.logs.entry import COMMAND, STDERR, LogConfig, wants_colour
from tfs_proxy.observe.metric import MeasuredMetric, added_up
from tfs_proxy.observe.request_counts import FinishedRequest, KnownModels, RequestCounts
from tfs_proxy.observe.shared_files import LineReader
from tfs_proxy.observe.stage_table import StageTables
from tfs_proxy.run.logs.request_lines import RequestLines
from tfs_proxy.settings.settings import Settings
from tfs_proxy.values.layout import Workspace


class RequestCounter:
    """``counts`` has every request whose line has been read; a scrape reads the last ones first.

    ``stages`` is the folder of the workers' tables.
    """

    def __init__(self, path: Path, stages: Path) -> None:
        self.counts = RequestCounts()
        self._lines = LineReader(path)
        self._stages_folder = stages
        self._stages: list[StageTables] = []
        self._former_stages: list[MeasuredMetric] = []

    def expect(self, known: KnownModels) -> None:
        """From here on, counts requests by model, too; ``known`` may get more models later."""
        self.read()
        self.counts.expect(known)
        self._stages.append(StageTables(self._stages_folder, known))

    def expect_other_models(self, known: KnownModels, stages: Path) -> None:
        """From here on, these are the models of the run; their workers have their tables in ``stages``.

        Counts stay, except for models that have gone. All but the last workers have ended.
        """
        self.read()
        if self.counts.models is not None:
            self.counts.models.follow(known)
        for tables in self._stages[:-1]:
            self._former_stages = added_up([*self._former_stages, *tables.measure()])
        self._stages = [*self._stages[-1:], StageTables(stages, known)]

    def forget(self, model: str) -> None:
        """Counts the requests of a removed model so far, and drops its series."""
        self.read()
        if self.counts.models is not None:
            self.counts.models.remove_model(model)

    def read(self) -> bool:
        """Counts new lines; True if there were any."""
        found = False
        for chunk in self._lines.chunks():
            self.counts.add_lines(chunk)
            found = True
        for tables in self._stages:
            tables.fold()
        return found

    def measure(self) -> Iterator[MeasuredMetric]:
        self.read()
        yield from self.counts.measure()
        measured = [metric for tables in self._stages for metric in tables.measure()]
        yield from added_up([*self._former_stages, *measured])


READ_PAUSE_SECONDS = 0.05


class RunRecords:
    """The log of a run and its requests; ``log`` is the logging of all processes."""

    def __init__(
        self,
        settings: Settings,
        environ: Mapping[str, str],
        workspace: Workspace,
    ) -> None:
        descriptor = os.dup(STDERR)
        self.log = LogConfig(settings.log_format, wants_colour(descriptor, environ), descriptor)
        self.requests = RequestCounter(workspace.requests, workspace.stages)
        self.request_lines = RequestLines(workspace.access, settings.access_log)

    def note_early(self, request: FinishedRequest, request_id: str) -> None:
        """Counts and logs a request that is answered before workers can."""
        self.requests.counts.add(request)
        self.request_lines.log.show(RequestLine(request, request_id), COMMAND)

    def read(self) -> bool:
        """Counts and logs what nginx and the workers have written so far; True if there was anything new."""
        counted = self.requests.read()
        return self.request_lines.read() or counted

    async def keep_reading(self) -> None:
        """Reads often; never returns."""
        while True:
            self.read()
            await asyncio.sleep(READ_PAUSE_SECONDS)

    def close(self) -> None:
        """Shows the lines that are left, and closes the descriptor of the log."""
        self.request_lines.close()
        os.close(self.log.descriptor)
