"""nginx's lines of requests on their way into the log: not too many at once, and all by the end."""

import logging
import os
from pathlib import Path

import pytest

from tfs_proxy.observe.logs.entry import EntryHandler, LogConfig
from tfs_proxy.observe.request_counts import FinishedRequest, request_line
from tfs_proxy.run.logs.request_lines import RequestLines
from tfs_proxy.settings.parsers import AccessLog

COUNT = 20_000


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


@pytest.fixture
def folder(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> Path:
    """A folder with very many lines, each of which is shown."""
    caplog.set_level(logging.INFO)
    line = request_line(FinishedRequest("POST", 200, 0.001, "/invocations"))
    (tmp_path / "access").write_bytes(b"".join(b'%d id-%d - "" ' % (n, n) + line for n in range(COUNT)))
    return tmp_path


@pytest.fixture
def lines(folder: Path, log: Path) -> RequestLines:
    """Their reader."""
    return reader(folder, log)


def reader(folder: Path, log: Path) -> RequestLines:
    """A reader that shows each line of ``folder`` in ``log``."""
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    handler = EntryHandler(LogConfig("json", descriptor=descriptor))
    return RequestLines(folder / "access", AccessLog(AccessLog.ALL), handler)


def shown(log: Path) -> int:
    return log.read_bytes().count(b"\n")


def test_a_burst_is_shown_in_parts(lines: RequestLines, log: Path) -> None:
    lines.read()
    first = shown(log)
    lines.read()

    assert 0 < first < COUNT / 2
    assert first < shown(log) < COUNT


def test_the_end_shows_all_that_is_left(lines: RequestLines, log: Path) -> None:
    lines.read()
    lines.close()

    assert shown(log) == COUNT
    entries = log.read_text().splitlines()
    assert '"id-0"' in entries[0]
    assert f'"id-{COUNT - 1}"' in entries[-1]
