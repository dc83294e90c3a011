"""The output of one object: batches may be answered in any order, and are written in that of the input."""

import logging
import threading
from collections.abc import Callable

from tfs_proxy.transform.bad_records import BadLimit
from tfs_proxy.transform.files import ERRORS, OUT, InputObject
from tfs_proxy.transform.run_statistics import (
    BadRecord,
    ObjectFailed,
    RunStatistics,
    RunStopped,
    StorageError,
)
from tfs_proxy.transform.s3 import OutputSink, OutputTarget
from tfs_proxy.transform.transformer import Outcome, error_line

log = logging.getLogger(__name__)


class OrderedOutput:
    """One object from its first batch to its output, which is written whole or not at all. Thread-safe.

    ``release`` is called once for each batch whose memory is free again, ``on_end`` once when the object
    is written, failed or given up. More bad records than ``limit`` fail it.
    """

    def __init__(
        self,
        item: InputObject,
        target: OutputTarget,
        fingerprint: str,
        statistics: RunStatistics,
        release: Callable[[], None],
        on_end: Callable[["OrderedOutput"], None] = lambda _output: None,
        limit: BadLimit | None = None,
    ) -> None:
        self.item = item
        self._target = target
        self._statistics = statistics
        self._release = release
        self._on_end = on_end
        self._limit = limit or BadLimit()
        self._records = self._bad = self._surplus = self._uneven = 0
        self._fingerprint = fingerprint
        self._sinks: dict[str, OutputSink] = {}
        self._early: dict[int, tuple[Outcome, int]] = {}
        self._next = self._started = self._settled = 0
        self._counted_bytes = 0
        self._input_ended = False
        self._stopped = False
        self._failure: BadRecord | None = None
        self._lock = threading.Lock()

    @property
    def is_over(self) -> bool:
        """True if no more of it needs to be sent: it failed, or the run was stopped."""
        return self._failure is not None or self._stopped

    @property
    def was_stopped(self) -> bool:
        return self._stopped and self._failure is None

    def start_batch(self) -> int:
        """Announce one more batch; returns its number, from 0."""
        with self._lock:
            self._started += 1
            return self._started - 1

    def deliver(self, number: int, outcome: Outcome, size: int) -> None:
        """Hand in the ``outcome`` of batch ``number``, which was ``size`` bytes of the object."""
        with self._lock:
            self._settled += 1
            self._early[number] = (outcome, size)
            if self.is_over:
                self._discard()
            else:
                self._write_ready()
            self._end_if_last()

    def fail_batch(self, error: Exception) -> None:
        """Settle a batch that has no outcome; ``error`` says why."""
        with self._lock:
            self._settled += 1
            self._record_failure(error)
            self._release()
            self._end_if_last()

    def end_input(self, error: Exception | None = None) -> None:
        """Announce that no batch follows; ``error`` if the rest of the object can't be read."""
        with self._lock:
            if error is not None:
                self._record_failure(error)
            self._input_ended = True
            self._end_if_last()

    def _record_failure(self, error: Exception) -> None:
        """Fail the object; of several failures, the one at the earliest record is reported."""
        if isinstance(error, ObjectFailed):
            failure = error.bad_record
        elif isinstance(error, RunStopped):
            self._stopped = True
            failure = None
        else:
            failure = BadRecord(self.item.name, str(error))
        if failure and (self._failure is None or (failure.record or 0) < (self._failure.record or 0)):
            self._failure = failure
        self._discard()

    def _discard(self) -> None:
        for _ in range(len(self._early)):
            self._release()
        self._early.clear()

    def _write_ready(self) -> None:
        try:
            while self._next in self._early:
                outcome, size = self._early[self._next]
                self._sink(OUT).write(outcome.text)
                if outcome.errors:
                    self._sink(ERRORS).write(outcome.errors)
                    for bad_record in outcome.bad:
                        self._statistics.fail(bad_record)
                del self._early[self._next]
                self._next += 1
                self._counted_bytes += size
                self._records += outcome.records
                self._bad += len(outcome.bad)
                self._surplus = self._surplus + outcome.surplus
                self._uneven = self._uneven + outcome.uneven
                self._statistics.add(records=outcome.records, bad_records=len(outcome.bad), bytes=size)
                self._release()
        except StorageError as error:
            self._record_failure(error)

    def _sink(self, ending: str) -> OutputSink:
        if ending not in self._sinks:
            self._sinks[ending] = self._target.create(self.item, ending, self._fingerprint)
        return self._sinks[ending]

    def _end_if_last(self) -> None:
        if not self._input_ended or self._settled < self._started:
            return
        if not self.is_over:
            try:
                self._limit.check_share(self.item.name, self._bad, self._records)
                output = self._sink(OUT)
                if ERRORS in self._sinks:
                    self._sinks[ERRORS].commit()
                else:
                    self._target.remove(self.item.name, ERRORS)
                # The output comes last: it marks the object as finished.
                output.commit()
            except (ObjectFailed, StorageError) as error:
                self._record_failure(error)
        if self._failure is not None:
            self._fail(self._failure)
        elif self._stopped:
            self._abort()
        else:
            self._statistics.add(objects=1, bytes=self.item.size - self._counted_bytes)
            if self._uneven:
                sent = self._records - self._bad
                log.warning("%s: %d records got %d rows", self.item.name, sent, sent + self._surplus)
                self._statistics.add(uneven=1, uneven_records=sent, surplus=self._surplus)
        self._on_end(self)

    def _fail(self, failure: BadRecord) -> None:
        if OUT in self._sinks:
            self._sinks[OUT].abort()
        # An earlier run made it of other input, but a reader would take it for this run's.
        try:
            self._target.remove(self.item.name, OUT)
        except StorageError as error:
            log.warning("an earlier run's output remains next to %s%s: %s", self.item.name, ERRORS, error)
        try:
            self._sink(ERRORS).write(error_line(failure))
            self._sink(ERRORS).commit()
        except StorageError:
            self._abort()
        self._statistics.fail(failure)
        self._statistics.add(failed=1, bytes=self.item.size - self._counted_bytes)

    def _abort(self) -> None:
        for sink in self._sinks.values():
            sink.abort()
