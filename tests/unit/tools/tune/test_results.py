"""What `tfs-proxy tune` prints and draws."""

import json
import xml.etree.ElementTree as ET

import pytest

from tfs_proxy.tools.tune.axes import Axis, Option, Point, Space
from tfs_proxy.tools.tune.clients import NotAnAnswer, answer_end
from tfs_proxy.tools.tune.findings import Findings, findings_of, json_text, picture, result_lines
from tfs_proxy.tools.tune.measured import FAILED, LoadLevel, LoadWindow, Trial
from tfs_proxy.tools.tune.run import climb
from tfs_proxy.tools.tune.search import Search

WORKERS = Axis(
    "workers", (Option("2 workers"), Option("4 workers & <more>", {"WORKERS": "4"}), Option("8", {"W": "8"}))
)
LEVELS: dict[Point, tuple[LoadLevel, ...]] = {
    (0,): (LoadLevel(8, 1000, 5, 20), LoadLevel(16, 1100, 9, 60)),
    (1,): (LoadLevel(8, 1200, 5, 20), LoadLevel(16, 1500, 9, 40)),
    (2,): (LoadLevel(8, 900, 5, 20, {"status 503": 7}),),
}


def findings(p99_ms: float = 50) -> Findings:
    space = Space((WORKERS,), {"FIXED": "7"})

    def measure(point: Point, times: int) -> Trial:
        return Trial(point, LEVELS[point])

    search = Search(space, p99_ms, measure, lambda: 0.0, 300)
    search.run()
    return findings_of(search, space, p99_ms, 12.5)


def test_the_block_can_be_an_env_file() -> None:
    lines = list(result_lines(findings()))
    block = lines[lines.index("#") + 1 :]

    assert [line for line in lines if not line.startswith("#")] == ["WORKERS=4"]
    assert block[0] == "# 1500 requests/s with p99 within 50 ms, 1.50 times the defaults' 1000"
    assert block[-1] == '# SageMaker: "Environment": {"WORKERS": "4"}'


def test_the_table_has_every_point_and_what_failed() -> None:
    table = list(result_lines(findings()))

    assert table[1].split() == ["#", "1500", "40.0", "16", "5", "4", "workers", "&", "<more>"]
    assert "(7 x status 503)" in "".join(table)
    assert "# FIXED=7 is set, so it was not searched." in table


def test_defaults_that_are_the_best_need_no_variable() -> None:
    found = Findings(tuple(each for each in findings().ranked if each.is_default), {}, 50, 1)

    assert list(result_lines(found))[-1].startswith("# The defaults are the best")


def test_a_target_that_nothing_keeps_is_said() -> None:
    found = findings(p99_ms=10)

    assert found.best is None
    assert list(result_lines(found))[-1] == "# No settings that were tried keep p99 within 10 ms."
    assert json.loads(json_text(found))["environment"] is None
    ET.fromstring(picture(found))


def test_the_picture_has_every_load_that_was_answered() -> None:
    root = ET.fromstring(picture(findings()))
    titles = [element.text for element in root.iter("{http://www.w3.org/2000/svg}title")]

    assert "4 workers & <more>: 16 connections, 1500 req/s, p99 40.0 ms" in titles
    assert "defaults: 8 connections, 1000 req/s, p99 20.0 ms" in titles


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;x=y\r\nhello\r\n0\r\n\r\n"
SIZED = b"HTTP/1.1 503 Busy\r\nConnection: close\r\ncontent-length: 4\r\n\r\nbusy"
INFORMED = b"HTTP/1.1 100 Continue\r\n\r\n" + SIZED
EMPTY = b"HTTP/1.1 204 No Content\r\n\r\n"


def test_only_answers_within_the_window_count() -> None:
    """The run-up and what ends behind the load are left out of rate and latencies."""
    window = LoadWindow(4, begins=10.0, ends=12.0)
    for sent, now in ((9.0, 9.9), (9.8, 10.0), (10.0, 10.5), (11.0, 11.9), (11.5, 12.0)):
        window.answered(200, sent, now)

    level = window.level()

    assert level.rate == 1.5
    assert level.p50_ms == pytest.approx(500)
    assert level.p99_ms == pytest.approx(900)
    assert level.holds(900.1)
    assert not level.holds(800)


def test_other_statuses_and_lost_answers_disqualify() -> None:
    window = LoadWindow(4, begins=10.0, ends=12.0)
    window.answered(503, 9.0, 9.5)
    window.failed("no connection: refused")
    window.answered(200, 10.0, 11.0)

    level = window.level()

    assert level.failures == {"status 503": 1, "no connection: refused": 1}
    assert not level.holds(10_000)
    assert Trial((0,), (level,)).score(10_000) == FAILED
    assert "503" in Trial((0,), (level,)).failure


def test_requests_that_hang_are_seen() -> None:
    window = LoadWindow(2, begins=0.0, ends=2.0)
    window.answered(200, 1.0, 1.001)
    window.unanswered([0.0, 1.9995])

    level = window.level()

    assert level.rate == 0.5
    assert level.p99_ms == pytest.approx(2000)


class ClosedServer:
    """Answers ``slots`` requests at a time, each in ``service_ms``: what queueing theory says of it."""

    def __init__(self, slots: int, service_ms: float) -> None:
        self.loads: list[int] = []
        self._slots, self._service_ms = slots, service_ms

    def __call__(self, connections: int) -> LoadLevel:
        self.loads.append(connections)
        latency_ms = self._service_ms * max(1.0, connections / self._slots)
        return LoadLevel(connections, connections / latency_ms * 1000, latency_ms, latency_ms)


def test_loads_rise_until_the_rate_does_not() -> None:
    slots = ClosedServer(16, 1)

    levels = climb(slots, p99_ms=50, first=8)

    assert slots.loads == [8, 16, 32]
    assert max(level.rate for level in levels if level.holds(50)) == 16_000


def test_loads_fall_until_the_target_is_kept() -> None:
    """Where the first load is too high, lower ones are measured, and nothing above."""
    slots = ClosedServer(2, 20)

    levels = climb(slots, p99_ms=50, first=32)

    assert slots.loads == [32, 16, 8, 4]
    assert [level.holds(50) for level in levels] == [False, False, False, True]


def test_a_target_that_nothing_keeps_ends_at_one_connection() -> None:
    """Its score is the p99 that was reached, so that a search still goes downhill."""
    levels = climb(ClosedServer(1, 80), p99_ms=50, first=8)

    assert levels[-1].connections == 1
    assert Trial((0,), levels).score(50) == -80


@pytest.mark.parametrize(
    ("answer", "status", "closes"),
    [(CHUNKED, 200, False), (SIZED, 503, True), (INFORMED, 503, True), (EMPTY, 204, False)],
)
def test_an_answer_ends_where_its_framing_says(answer: bytes, status: int, closes: bool) -> None:
    """Wherever the bytes are cut, the answer is whole only at its end, and what follows is left."""
    assert all(answer_end(answer[:cut]) is None for cut in range(len(answer)))
    end = answer_end(answer + b"HTTP/1.1 ")
    assert end is not None
    assert (end.status, end.size, end.closes) == (status, len(answer), closes)


@pytest.mark.parametrize(
    "received",
    [
        b"SSH-2.0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n\r\nuntil the end",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    ],
)
def test_what_does_not_end_is_refused(received: bytes) -> None:
    with pytest.raises(NotAnAnswer):
        answer_end(received)
