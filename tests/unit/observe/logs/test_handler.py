"""Records of `logging` as entries on a descriptor, and how the log is configured: colours and levels."""

import json
import logging
import os
import re
from collections.abc import Iterator
from typing import Any

import pytest

from tfs_proxy.observe.logs.entry import QUIET, EntryHandler, LogConfig, set_level, wants_colour


class Logged:
    """A logger whose entries are read back from a pipe."""

    def __init__(self) -> None:
        self.reading, self.writing = os.pipe()
        self.logger = logging.getLogger("of_this_test")
        self.logger.setLevel(logging.INFO)
        self.logger.propagate = False
        self.handler = EntryHandler(LogConfig("json", descriptor=self.writing), lambda: "worker")
        self.logger.addHandler(self.handler)

    def entries(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in os.read(self.reading, 1_000_000).splitlines()]


@pytest.fixture
def logged() -> Iterator[Logged]:
    logged = Logged()
    yield logged
    logged.logger.removeHandler(logged.handler)
    os.close(logged.reading)
    os.close(logged.writing)


def test_an_exception_is_one_entry_with_its_traceback(logged: Logged) -> None:
    try:
        int("x")
    except ValueError:
        logged.logger.exception("failed")

    (entry,) = logged.entries()

    assert entry["message"] == "failed"
    assert entry["exception"].startswith("Traceback")
    assert "ValueError" in entry["exception"]


def test_a_wrong_call_of_logging_breaks_nothing(logged: Logged) -> None:
    """The entry says where it is; a field may have no text, too."""

    class Unspeakable:
        def __str__(self) -> str:
            raise ValueError

    logged.handler.handle(logging.LogRecord("mine", logging.INFO, __file__, 1, "%d", ("not a number",), None))
    logged.logger.info("good", extra={"it": Unspeakable()})

    for entry in logged.entries():
        assert entry["level"] == "error"
        assert re.search(r"test_handler\.py:\d+ can't be formatted", entry["message"])


def test_nobody_reads_any_more(logged: Logged) -> None:
    handler = EntryHandler(LogConfig("json", descriptor=logged.writing))
    os.dup2(os.open(os.devnull, os.O_RDONLY), logged.writing)

    handler.say("lost", "info")

    assert os.read(logged.writing, 10) == b""


@pytest.fixture
def levels() -> Iterator[None]:
    """The levels of this process, as they were."""
    loggers = [logging.getLogger(name) for name in (None, "gunicorn.error", *QUIET)]
    before = [logger.level for logger in loggers]
    yield
    for logger, level in zip(loggers, before, strict=True):
        logger.setLevel(level)


def test_a_terminal_has_colours_unless_somebody_asks_for_none() -> None:
    """Files and pipes have none."""
    ours, terminal = os.openpty()
    reading, pipe = os.pipe()
    try:
        assert wants_colour(terminal, {})
        assert not wants_colour(terminal, {"NO_COLOR": "1"})
        assert not wants_colour(terminal, {"TERM": "dumb"})
        assert not wants_colour(pipe, {})
    finally:
        for descriptor in (ours, terminal, reading, pipe):
            os.close(descriptor)


@pytest.mark.usefixtures("levels")
def test_libraries_stay_quiet() -> None:
    """botocore and others would log credentials and requests at debug."""
    set_level("debug")

    assert logging.getLogger().getEffectiveLevel() == logging.DEBUG
    assert {logging.getLogger(name).getEffectiveLevel() for name in QUIET} == {logging.WARNING}
