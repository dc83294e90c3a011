"""How the log is configured: colours, the file of a run, and levels."""

import logging
import os
from collections.abc import Iterator

import pytest

from tfs_proxy.observe.logs.config import QUIET, LogConfig, set_level, wants_colour


@pytest.fixture(autouse=True)
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


def test_other_processes_inherit_how_they_log() -> None:
    config = LogConfig("json", coloured=True, descriptor=7)

    assert LogConfig.inherited(config.variable()) == config
    assert LogConfig.inherited({}) == LogConfig()


def test_libraries_stay_quiet() -> None:
    """botocore and others would log credentials and requests at debug."""
    set_level("debug")

    assert logging.getLogger().getEffectiveLevel() == logging.DEBUG
    assert {logging.getLogger(name).getEffectiveLevel() for name in QUIET} == {logging.WARNING}
