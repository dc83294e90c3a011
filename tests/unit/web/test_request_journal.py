"""The notes of begun requests, which other workers read."""

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from tfs_proxy.web.workers.request_journal import (
    AGAIN,
    REQUEST,
    WORKER_DIED,
    RequestJournal,
    journaling,
    under_way,
)

ONE, OTHER = "1" * 32, "2" * 32


@pytest.fixture
def journal(tmp_path: Path) -> RequestJournal:
    """The notes of this process, for two requests at once."""
    return RequestJournal(tmp_path / "begun", 2)


def record_of(journal: RequestJournal, tmp_path: Path) -> int:
    """How many requests the file says are under way."""
    return under_way(tmp_path / "begun" / str(os.getpid()))


def echo(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    """An app that answers with what it is asked for."""
    start_response("200 OK", [])
    return [environ["PATH_INFO"].encode()]


def ask(app: Callable[..., Iterable[bytes]], **headers: str) -> tuple[str, bytes]:
    """Status and body of one request."""
    statuses: list[str] = []
    pieces = app({"PATH_INFO": "/x", **headers}, lambda status, _headers: statuses.append(status))
    body = b"".join(pieces)
    if hasattr(pieces, "close"):
        pieces.close()
    return statuses[0], body


def test_what_has_begun_is_known_after_its_end_and_counted_until_then(
    journal: RequestJournal, tmp_path: Path
) -> None:
    """The id stays for whoever asks late; the count is of what has not ended."""
    place = journal.begin(ONE)

    assert (journal.has(ONE), journal.has(OTHER), record_of(journal, tmp_path)) == (True, False, 1)
    journal.end(place)
    assert (journal.has(ONE), record_of(journal, tmp_path)) == (True, 0)


def test_requests_without_a_name_are_counted_too(journal: RequestJournal, tmp_path: Path) -> None:
    """Without nginx nobody names them."""
    journal.begin("")

    assert record_of(journal, tmp_path) == 1


def test_a_request_that_comes_again_is_handled_only_if_nobody_had_begun_it(journal: RequestJournal) -> None:
    """Handled then, it counts as begun itself."""
    app = journaling(echo, journal)

    assert ask(app, **{REQUEST: ONE, AGAIN: "1"}) == ("200 OK", b"/x")
    status, body = ask(app, **{REQUEST: ONE, AGAIN: "1"})
    assert (status, WORKER_DIED.encode() in body) == ("502 Bad Gateway", True)


def test_a_mark_without_a_name_means_nothing(journal: RequestJournal) -> None:
    """A client that makes the header up is served."""
    assert ask(journaling(echo, journal), **{AGAIN: "1"}) == ("200 OK", b"/x")


def test_a_request_that_fails_has_ended(journal: RequestJournal, tmp_path: Path) -> None:
    """However often that happens, there is room for the next."""

    def fail(_environ: dict[str, Any], _start_response: Callable[..., Any]) -> Iterable[bytes]:
        raise OSError("broken")

    for _ in range(5):
        with pytest.raises(OSError, match="broken"):
            ask(journaling(fail, journal), **{REQUEST: ONE})
    assert record_of(journal, tmp_path) == 0


def test_no_record_means_nothing_was_begun(tmp_path: Path) -> None:
    """A worker that dies before it has loaded its application has none."""
    assert under_way(tmp_path / "12345") == 0
