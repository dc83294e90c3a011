"""Counts the run's requests from the lines of nginx and the workers."""

from collections.abc import Iterator
from pathlib import Path

from tfs_proxy.observe.line_file import LineReader
from tfs_proxy.observe.metric import MeasuredMetric, added_up
from tfs_proxy.observe.request_counts import KnownModels, RequestCounts
from tfs_proxy.observe.stage_table import StageTables


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
