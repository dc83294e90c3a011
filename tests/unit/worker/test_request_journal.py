"""Notes of begun requests, which other workers read."""

import errno
import os
from pathlib import Path

import pytest

from tfs_proxy.observe.fixed_file import under_way
from tfs_proxy.worker.gunicorn_workers.journal import RequestJournal

ONE, OTHER = "1" * 32, "2" * 32


@pytest.fixture
def journal(tmp_path: Path) -> RequestJournal:
    """The notes of this process, for two requests at once."""
    return RequestJournal(tmp_path / "begun", 2)


def record_of(journal: RequestJournal, tmp_path: Path) -> int:
    return under_way(tmp_path / "begun" / str(os.getpid()))


def test_what_has_begun_is_known_after_its_end_and_counted_until_then(
    journal: RequestJournal, tmp_path: Path
) -> None:
    """The id stays for late requests; the count is of those in flight."""
    place = journal.begin(ONE)

    assert (journal.has(ONE), journal.has(OTHER), record_of(journal, tmp_path)) == (True, False, 1)
    journal.end(place)
    assert (journal.has(ONE), record_of(journal, tmp_path)) == (True, 0)


def test_no_record_means_nothing_was_begun(tmp_path: Path) -> None:
    """A worker that dies before it has loaded its application has none."""
    assert under_way(tmp_path / "12345") == 0


def test_a_file_that_can_not_be_written_is_a_problem_until_it_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Meanwhile requests are noted in memory, which the file then has."""

    def full(_descriptor: int, _offset: int, _size: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as no_room:
        no_room.setattr("os.posix_fallocate", full)
        journal = RequestJournal(tmp_path / "begun", 2)
        place = journal.begin(ONE)
        assert journal.problem() == "a worker's file in begun can't be written: No space left on device"

    assert (journal.problem(), record_of(journal, tmp_path)) == ("", 1)
    journal.end(place)
    assert record_of(journal, tmp_path) == 0
