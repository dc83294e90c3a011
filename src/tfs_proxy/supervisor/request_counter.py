"""Counts the run's requests: reads what nginx and the workers have written of them."""

from collections.abc import Iterator
from pathlib import Path

from tfs_proxy.observe.line_file import LineReader
from tfs_proxy.observe.metric import MeasuredMetric
from tfs_proxy.observe.model_counts import KnownModels, ModelCounts
from tfs_proxy.observe.request_counts import RequestCounts
from tfs_proxy.observe.stage_table import StageTables


class RequestCounter:
    """``counts`` has every request whose line has been read; a scrape reads the last ones first.

    ``stages`` is the folder of the workers' tables.
    """

    def __init__(self, path: Path, stages: Path) -> None:
        self.counts = RequestCounts()
        self._lines = LineReader(path)
        self._stages_folder = stages
        self._stages: StageTables | None = None

    def expect(self, known: KnownModels) -> None:
        """From here on, count requests by model, too; ``known`` may get more models later."""
        self.read()
        self.counts.models = ModelCounts(known)
        self._stages = StageTables(self._stages_folder, known)

    def forget(self, model: str) -> None:
        """A model has gone: its requests so far are counted, and no series of it stays."""
        self.read()
        if self.counts.models is not None:
            self.counts.models.remove_model(model)

    def read(self) -> None:
        """Count what has been written since the last time."""
        for chunk in self._lines.chunks():
            self.counts.add_lines(chunk)
        if self._stages is not None:
            self._stages.fold()

    def measure(self) -> Iterator[MeasuredMetric]:
        """All requests that have ended by now."""
        self.read()
        yield from self.counts.measure()
        if self._stages is not None:
            yield from self._stages.measure()
