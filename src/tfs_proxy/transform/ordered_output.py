"""One object on its way: batches are answered in any order, and written in theirs, whole or not at all."""

import logging
import threading
from collections.abc import Callable

from tfs_proxy.transform.failures import BadRecord, ObjectFailed, RunStopped, StorageError
from tfs_proxy.transform.run_statistics import RunStatistics
from tfs_proxy.transform.send.isolation import Outcome, error_line
from tfs_proxy.transform.stores.interface import ERRORS, OUT, InputObject, OutputSink, OutputTarget

log = logging.getLogger(__name__)


class OrderedOutput:
    """One object from its first batch to its output. Used by all threads.

    ``release`` is called once for each batch that needs no memory any more, ``ended`` once when the
    object is written, failed or given up.
    """

    def __init__(
        self,
        item: InputObject,
        target: OutputTarget,
        fingerprint: str,
        statistics: RunStatistics,
        release: Callable[[], None],
        ended: Callable[["OrderedOutput"], None] = lambda _output: None,
    ) -> None:
        self.item = item
        self._target = target
        self._statistics = statistics
        self._release = release
        self._ended = ended
        self._fingerprint = fingerprint
        self._sink: OutputSink | None = None
        self._errors: OutputSink | None = None
        self._held: dict[int, tuple[Outcome, int]] = {}
        self._next = self._begun = self._settled = 0
        self._counted_bytes = 0
        self._input_ended = False
        self._stopped = False
        self._why: BadRecord | None = None
        self._lock = threading.Lock()

    @property
    def is_over(self) -> bool:
        """Whether nothing of it need be sent any more: it failed, or the run was stopped."""
        return self._why is not None or self._stopped

    @property
    def was_stopped(self) -> bool:
        """Whether it was given up because the run was stopped."""
        return self._stopped and self._why is None

    def begin(self) -> int:
        """Announce one more batch; its number, from 0."""
        with self._lock:
            self._begun += 1
            return self._begun - 1

    def deliver(self, number: int, outcome: Outcome, size: int) -> None:
        """Hand in what batch ``number``, of ``size`` bytes, became."""
        with self._lock:
            self._settled += 1
            self._held[number] = (outcome, size)
            if self.is_over:
                self._drop()
            else:
                self._write()
            self._end_if_last()

    def lose(self, error: Exception) -> None:
        """Hear that a batch can't be delivered, and why."""
        with self._lock:
            self._settled += 1
            self._note(error)
            self._release()
            self._end_if_last()

    def end_input(self, error: Exception | None = None) -> None:
        """Hear that no batch follows; with ``error``, that the object can't be read on."""
        with self._lock:
            if error is not None:
                self._note(error)
            self._input_ended = True
            self._end_if_last()

    def _note(self, error: Exception) -> None:
        """Fail; of several reasons the one at the earliest record counts."""
        if isinstance(error, ObjectFailed):
            why = error.why
        elif isinstance(error, RunStopped):
            self._stopped, why = True, None
        else:
            why = BadRecord(self.item.name, None, None, None, str(error))
        if why and (self._why is None or (why.record or 0) < (self._why.record or 0)):
            self._why = why
        self._drop()

    def _drop(self) -> None:
        for _ in range(len(self._held)):
            self._release()
        self._held.clear()

    def _write(self) -> None:
        try:
            while self._next in self._held:
                outcome, size = self._held[self._next]
                self._write_one(outcome)
                del self._held[self._next]
                self._next += 1
                self._counted_bytes += size
                self._statistics.add(records=outcome.records, bad_records=len(outcome.bad), bytes=size)
                self._release()
        except StorageError as error:
            self._note(error)

    def _write_one(self, outcome: Outcome) -> None:
        if self._sink is None:
            self._sink = self._target.create(self.item.name, self._fingerprint, self.item.version)
        self._sink.write(outcome.text)
        if outcome.errors:
            self._write_errors(outcome.errors)
            for each in outcome.bad:
                self._statistics.fail(each)

    def _write_errors(self, lines: bytes) -> None:
        if self._errors is None:
            self._errors = self._target.create_errors(self.item.name)
        self._errors.write(lines)

    def _end_if_last(self) -> None:
        if not self._input_ended or self._settled < self._begun:
            return
        if not self.is_over:
            try:
                self._finish()
            except StorageError as error:
                self._note(error)
        if self._why is not None:
            self._fail(self._why)
        elif self._stopped:
            self._abandon()
        else:
            self._statistics.add(objects=1, bytes=self.item.size - self._counted_bytes)
        self._ended(self)

    def _finish(self) -> None:
        if self._sink is None:
            self._sink = self._target.create(self.item.name, self._fingerprint, self.item.version)
        if self._errors is not None:
            self._errors.commit()
        else:
            self._target.remove(self.item.name, ERRORS)
        self._sink.commit()

    def _fail(self, why: BadRecord) -> None:
        if self._sink is not None:
            self._sink.abort()
        self._remove_old_output()
        try:
            self._write_errors(error_line(why))
            if self._errors is not None:
                self._errors.commit()
        except StorageError:
            self._abandon()
        self._statistics.fail(why)
        self._statistics.add(failed=1, bytes=self.item.size - self._counted_bytes)

    def _remove_old_output(self) -> None:
        """An output beside the error file would be taken for this run's: it is that of other input."""
        try:
            self._target.remove(self.item.name, OUT)
        except StorageError as error:
            log.warning("the output of an earlier run stays beside %s%s: %s", self.item.name, ERRORS, error)

    def _abandon(self) -> None:
        for sink in (self._sink, self._errors):
            if sink is not None:
                sink.abort()
