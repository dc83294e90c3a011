"""Times of requests in each stage, in a file for each worker that outlives it: written in place.

Writers and readers of a table know its layout from the models alone: for each model a histogram of each
stage, and one of records; first the buckets of all histograms, then the failed requests by model and stage,
then the sums of the histograms.
"""

import os
import threading
import time
from array import array
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tfs_proxy.observe import catalogue
from tfs_proxy.observe.metric import Distribution, MeasuredMetric
from tfs_proxy.observe.request_counts import OTHER, KnownModels
from tfs_proxy.observe.request_record import STAGES, RequestRecord
from tfs_proxy.observe.shared_files import FixedFile
from tfs_proxy.values.processes import has_ended

SECONDS_BOUNDS = (
    *(0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025),
    *(0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60),
)
RECORDS_BOUNDS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 4096, 16384, 65536)

_CELL_BYTES = 8
_RECORDS = len(STAGES)
"""Number of the histogram of records, after those of the stages."""

_FAILURES = len(STAGES) + 1
"""Counts of failed requests for each model: one for each stage, and one for failures in none."""

_BUCKETS = max(len(SECONDS_BOUNDS), len(RECORDS_BOUNDS)) + 1


class StageLayout:
    """Layout of a table: the numbers of its histograms."""

    def __init__(self, known: KnownModels) -> None:
        self.models = (*known.versions, OTHER)
        self._numbers = {model: index * (_RECORDS + 1) for index, model in enumerate(self.models)}
        self._other = self._numbers[OTHER]
        self.histograms = len(self.models) * (_RECORDS + 1)
        self.buckets = self.histograms * _BUCKETS
        self.counts_bytes = (self.buckets + len(self.models) * _FAILURES) * _CELL_BYTES
        self.table_bytes = self.counts_bytes + self.histograms * _CELL_BYTES

    def first_of(self, model: str) -> int:
        """Number of the model's first stage; the other stages and the records follow."""
        return self._numbers.get(model, self._other)

    def failures_of(self, model: str) -> int:
        """Cell of the model's requests that failed in the first stage; the other stages follow."""
        return self.buckets + self.first_of(model) // (_RECORDS + 1) * _FAILURES


class StageTable:
    """Table of a worker, for all its threads."""

    def __init__(self, folder: Path, layout: StageLayout) -> None:
        self._first_of, self._failures_of = layout.first_of, layout.failures_of
        self._lock = threading.Lock()
        # A pid may come again: the counts of a worker that had it before must stay.
        self._file = FixedFile(folder / f"{os.getpid()}-{time.time_ns()}", layout.table_bytes)
        self._counts_bytes = layout.counts_bytes
        self._write_to_file()

    def _write_to_file(self) -> None:
        table = memoryview(self._file.memory)
        self._counts = table[: self._counts_bytes].cast("Q")
        self._sums = table[self._counts_bytes :].cast("d")

    def problem(self) -> str:
        """Reason why others can't read the table, after another try to write it; empty if they can."""
        if self._file.problem:
            with self._lock:
                self._file.make()
                self._write_to_file()
        return self._file.problem

    def add(self, record: RequestRecord) -> None:
        """Count a request that has ended."""
        histogram = self._first_of(record.model)
        with self._lock:
            counts, sums = self._counts, self._sums
            for seconds in record.seconds:
                if seconds:
                    counts[histogram * _BUCKETS + bisect_left(SECONDS_BOUNDS, seconds)] += 1
                    sums[histogram] += seconds
                histogram += 1
            if record.records is not None:
                counts[histogram * _BUCKETS + bisect_left(RECORDS_BOUNDS, record.records)] += 1
                sums[histogram] += record.records

    def add_failure(self, record: RequestRecord) -> None:
        """Count a request that has failed by the stage of its first error."""
        stage = record.failed_stage if record.failed_stage is not None else record.under_way
        with self._lock:
            self._counts[self._failures_of(record.model) + (_FAILURES - 1 if stage is None else stage)] += 1


class StageTables:
    """Sums of all workers' tables, those of dead ones included: they only grow."""

    def __init__(self, folder: Path, known: KnownModels) -> None:
        self._folder = folder
        self._layout = StageLayout(known)
        self._of_the_dead = _Sums(self._layout)

    def fold(self) -> None:
        """Take over the tables of workers that have ended, and delete their files."""
        for path in self._paths():
            if has_ended(int(path.name.partition("-")[0])):
                self._of_the_dead.add(path.read_bytes())
                path.unlink()

    def measure(self) -> Iterator[MeasuredMetric]:
        self.fold()
        sums = _Sums(self._layout, self._of_the_dead)
        for path in self._paths():
            sums.add(path.read_bytes())
        stages: dict[tuple[str, ...], Distribution] = {}
        records: dict[tuple[str, ...], Distribution] = {}
        for model in self._layout.models:
            first = self._layout.first_of(model)
            for number, stage in enumerate(STAGES):
                stages[stage, model] = sums.distribution(first + number, SECONDS_BOUNDS)
            records[model,] = sums.distribution(first + _RECORDS, RECORDS_BOUNDS)
        yield MeasuredMetric(catalogue.STAGE_DURATION, distributions=_used(stages))
        yield MeasuredMetric(catalogue.STAGE_ERRORS, dict(sums.failures()))
        yield MeasuredMetric(catalogue.REQUEST_RECORDS, distributions=_used(records))

    def _paths(self) -> Sequence[Path]:
        return tuple(self._folder.iterdir()) if self._folder.is_dir() else ()


class _Sums:
    """Sums of tables; ``copied`` are sums to begin with."""

    def __init__(self, layout: StageLayout, copied: "_Sums | None" = None) -> None:
        self._layout = layout
        self.counts = array("Q", bytes(layout.counts_bytes))
        self.sums = array("d", bytes(layout.table_bytes - layout.counts_bytes))
        if copied is not None:
            self.counts, self.sums = copied.counts, copied.sums

    def add(self, table: bytes) -> None:
        """Add a worker's table; one that is being made may be empty yet."""
        if len(table) < self._layout.table_bytes:
            return
        counts = array("Q", table[: self._layout.counts_bytes])
        sums = array("d", table[self._layout.counts_bytes :])
        self.counts = array("Q", map(int.__add__, self.counts, counts))
        self.sums = array("d", map(float.__add__, self.sums, sums))

    def distribution(self, histogram: int, bounds: Sequence[float]) -> Distribution:
        first = histogram * _BUCKETS
        counts = tuple(self.counts[first : first + len(bounds) + 1])
        return Distribution(bounds, counts, self.sums[histogram])

    def failures(self) -> Iterator[tuple[tuple[str, str], int]]:
        """Numbers of failed requests by stage and model, without zeros."""
        for model in self._layout.models:
            first = self._layout.failures_of(model)
            for number, stage in enumerate((*STAGES, OTHER)):
                if self.counts[first + number]:
                    yield (stage, model), self.counts[first + number]


def _used(distributions: Mapping[tuple[str, ...], Distribution]) -> dict[tuple[str, ...], Distribution]:
    return {labels: of for labels, of in distributions.items() if any(of.counts)}
