"""Bad records of a run: how many an object may have, and when all fail alike."""

import re
import threading
from collections import Counter
from typing import Self

from msgspec import Struct

from tfs_proxy.transform.run_statistics import BadRecord, ObjectFailed
from tfs_proxy.values.errors import StopServing

FIRST_RECORDS = 50
_LIMIT = re.compile(r"([0-9]{1,18})|([0-9]{1,3}(?:\.[0-9]{1,6})?)%")
_VALUE = re.compile(r"""\\?"[^"]*"|'[^']*'|[-+]?[0-9][0-9.]*""")


class BadLimit(Struct, frozen=True):
    """Records of an object that may be bad: ``most``, or a share of all in ``percent``; as ``text``."""

    text: str = "100%"
    most: int | None = None
    percent: float = 100.0

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read ``N`` or ``P%``; raises ValueError."""
        match = _LIMIT.fullmatch(text)
        if match is None or float(match[2] or 0) > 100:  # noqa: PLR2004
            raise ValueError(text)
        return cls(text, percent=float(match[2])) if match[2] else cls(text, int(match[1]))

    def check_share(self, name: str, bad: int, records: int) -> None:
        """Raise ObjectFailed if ``bad`` of the ``records`` of a whole object are too large a share."""
        if bad * 100 > records * self.percent:
            raise self.exceeded(name, f"{bad} of {records}")

    def exceeded(self, name: str, bad: str) -> ObjectFailed:
        sentence = f"{bad} records are bad, and --max-bad {self.text} allows no more"
        return ObjectFailed(BadRecord(name, sentence))


class EveryRecordFails(StopServing):
    """The first records of a run that were sent alone all failed alike, and no other has succeeded."""


class BadRecordCounts:
    """The bad records of a run, as far as they may end it or fail an object. Thread-safe.

    A ``limit`` of 100 % lets any number of records fail alike.
    """

    def __init__(self, limit: BadLimit | None) -> None:
        self._limit = limit or BadLimit()
        self._of_object: Counter[str] = Counter()
        self._first: list[BadRecord] = []
        self._goes_on = limit == BadLimit()
        self._lock = threading.Lock()

    def note_success(self) -> None:
        """Note that the server has answered a record: the run goes on, whatever comes."""
        self._goes_on = True

    def add(self, bad_record: BadRecord) -> None:
        """Count one. Raises EveryRecordFails, and ObjectFailed if the object now has too many."""
        with self._lock:
            self._of_object[bad_record.name] += 1
            bad = self._of_object[bad_record.name]
            if not self._goes_on:
                self._first.append(bad_record)
                self._goes_on = _kind(bad_record) != _kind(self._first[0])
            if len(self._first) >= FIRST_RECORDS and not self._goes_on:
                raise EveryRecordFails(
                    f"The first {FIRST_RECORDS} records that were sent alone failed alike, and none has "
                    f"succeeded, so that no more are sent (--max-bad 100% would): {self._first[0]}"
                )
        if self._limit.most is not None and bad > self._limit.most:
            raise self._limit.exceeded(bad_record.name, str(bad))


def _kind(bad_record: BadRecord) -> tuple[int | None, str]:
    """Kind of a failure: the status and the sentence without its values."""
    return bad_record.status, _VALUE.sub("…", bad_record.error)
