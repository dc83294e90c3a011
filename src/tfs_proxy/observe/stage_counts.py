"""Times of requests in each stage: a worker counts them from report to report, and the run adds these up."""

import threading
from collections.abc import Container, Iterator
from http import HTTPStatus

from tfs_proxy.observe import catalogue
from tfs_proxy.observe.metric import Histogram, MeasuredMetric
from tfs_proxy.observe.request_counts import OTHER
from tfs_proxy.observe.request_record import READ, STAGES, RequestRecord
from tfs_proxy.values.deployment import ReportedStages
from tfs_proxy.wire.routes import PROBES, path_of

SECONDS_BOUNDS = (
    *(0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025),
    *(0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60),
)
RECORDS_BOUNDS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 4096, 16384, 65536)
_ALL_RECORDS = ""
"""Stands where the others have their stage."""

_LABELS = frozenset({*STAGES, OTHER, _ALL_RECORDS})


def _empty() -> tuple[Histogram, Histogram, Histogram]:
    return Histogram(SECONDS_BOUNDS), Histogram(()), Histogram(RECORDS_BOUNDS)


class StageCounts:
    """Counts by stage and model, for all threads; models that are not known share a value.

    A script model has no name.
    """

    def __init__(self) -> None:
        self._known: Container[str] = ()
        self._lock = threading.Lock()
        self._histograms = self._seconds, self._failures, self._records = _empty()

    def __bool__(self) -> bool:
        return bool(self._seconds or self._failures)

    def set_models(self, known: Container[str]) -> None:
        """Take over the models, which may come and go later."""
        self._known = known

    def note_end(self, record: RequestRecord) -> None:
        """Count a request for a model that a worker has answered, and every one that failed."""
        model = record.model if record.model in self._known else OTHER
        with self._lock:
            if record.status >= HTTPStatus.BAD_REQUEST and path_of(record.target) not in PROBES:
                stage = record.failed_stage if record.failed_stage is not None else record.under_way
                self._failures.add((OTHER if stage is None else STAGES[stage], model), 1, 1)
            if not record.model and not (record.seconds[READ] and "" in self._known):
                return
            for name, seconds in zip(STAGES, record.seconds, strict=True):
                if seconds:
                    self._seconds.add((name, model), seconds, 1)
            if record.records is not None:
                self._records.add((_ALL_RECORDS, model), record.records, 1)

    def take(self) -> ReportedStages:
        """Take what was counted since the last time."""
        with self._lock:
            taken = self._histograms
            self._histograms = self._seconds, self._failures, self._records = _empty()
        return tuple(
            tuple(
                (stage, model, tuple(of.counts), of.total)
                for (stage, model), of in each.distributions().items()
            )
            for each in taken
        )

    def add(self, reported: ReportedStages) -> None:
        """Add what a worker has taken, which a script may have forged."""
        with self._lock:
            for histogram, rows in zip(self._histograms, reported, strict=False):
                for stage, model, counts, total in rows:
                    if stage in _LABELS:
                        labels = stage, model if not model or model in self._known else OTHER
                        histogram.add_counts(labels, counts, total)

    def forget(self, model: str) -> None:
        """Drop the series of a model that has gone."""
        with self._lock:
            for histogram in self._histograms:
                histogram.forget(model, at=1)

    def measure(self) -> Iterator[MeasuredMetric]:
        with self._lock:
            seconds, failures, records = (each.distributions() for each in self._histograms)
        yield MeasuredMetric(catalogue.STAGE_DURATION, distributions=seconds)
        yield MeasuredMetric(catalogue.STAGE_ERRORS, {labels: of.total for labels, of in failures.items()})
        by_model = {labels[1:]: of for labels, of in records.items()}
        yield MeasuredMetric(catalogue.REQUEST_RECORDS, distributions=by_model)
