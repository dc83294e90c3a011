"""nginx's lines of requests on their way into the log: not too many at once, and all by the end."""

import asyncio
import logging
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tfs_proxy.observe.logs.entry import EntryHandler, as_json
from tfs_proxy.observe.logs.foreign import read_event
from tfs_proxy.observe.request_counts import FinishedRequest, request_line
from tfs_proxy.run.logs.child_output import ChildOutput
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


def reader(folder: Path, log: Path, catch_up: Callable[[], None] = lambda: None) -> RequestLines:
    """A reader that shows each line of ``folder`` in ``log``."""
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    handler = EntryHandler(as_json, descriptor)
    return RequestLines(folder / "access", AccessLog(AccessLog.ALL), handler, catch_up=catch_up)


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


ERROR = b"2026/01/02 03:04:05 [error] 7#7: *1 upstream prematurely closed connection, client: unix:\n"


def test_an_error_that_still_lies_in_nginx_s_pipe_gets_the_id_of_its_request(folder: Path, log: Path) -> None:
    """The file with the request's line may be read before the pipe, into which nginx wrote earlier."""

    def hold(event: Sequence[str]) -> None:
        catching_up.hold(read_event(event))

    async def read() -> None:
        os.write(output.open(), ERROR)
        catching_up.read()
        output.close()

    output = ChildOutput(lambda _line: None, hold, lines_are_events=True)
    catching_up = reader(folder, log, output.read_on)

    asyncio.run(read())

    (entry,) = [entry for entry in log.read_text().splitlines() if "prematurely" in entry]
    assert '"id-1"' in entry
