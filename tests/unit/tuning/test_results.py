"""What `tfs-proxy tune` prints and draws."""

import json
import xml.etree.ElementTree as ET

from tfs_proxy.tuning.axes import Axis, Option, Point, Space
from tfs_proxy.tuning.findings import Findings, findings_of, json_text, result_lines
from tfs_proxy.tuning.measured import LoadLevel, Trial
from tfs_proxy.tuning.picture import picture
from tfs_proxy.tuning.search import Search

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
    """All lines are NAME=VALUE or comments; the gain is told."""
    lines = list(result_lines(findings()))
    block = lines[lines.index("#") + 1 :]

    assert [line for line in lines if not line.startswith("#")] == ["WORKERS=4"]
    assert block[0] == "# 1500 requests/s with p99 within 50 ms, 1.50 times the defaults' 1000"
    assert block[-1] == '# SageMaker: "Environment": {"WORKERS": "4"}'


def test_the_table_has_every_point_and_what_failed() -> None:
    """The best is first; failures and fixed settings are named."""
    table = list(result_lines(findings()))

    assert table[1].split() == ["#", "1500", "40.0", "16", "5", "4", "workers", "&", "<more>"]
    assert "(7 x status 503)" in "".join(table)
    assert "# FIXED=7 is set, so it was not searched." in table


def test_defaults_that_are_the_best_need_no_variable() -> None:
    """Nothing is to be pasted then."""
    found = Findings(tuple(each for each in findings().ranked if each.is_default), {}, 50, 1)

    assert list(result_lines(found))[-1].startswith("# The defaults are the best")


def test_a_target_that_nothing_keeps_is_said() -> None:
    """No block then, and the point with the lowest p99 is first."""
    found = findings(p99_ms=10)

    assert found.best is None
    assert list(result_lines(found))[-1] == "# No settings that were tried keep p99 within 10 ms."
    assert json.loads(json_text(found))["environment"] is None
    ET.fromstring(picture(found))


def test_the_picture_has_every_load_that_was_answered() -> None:
    """It is well-formed, and a point's title says what it is."""
    root = ET.fromstring(picture(findings()))
    titles = [element.text for element in root.iter("{http://www.w3.org/2000/svg}title")]

    assert "4 workers & <more>: 16 connections, 1500 req/s, p99 40.0 ms" in titles
    assert "defaults: 8 connections, 1000 req/s, p99 20.0 ms" in titles


def test_json_has_every_load() -> None:
    """For machines, with the same names."""
    document = json.loads(json_text(findings()))

    assert document["environment"] == {"WORKERS": "4"}
    assert document["points"][0]["trials"][0][1]["rate"] == 1500
    assert document["points"][-1]["requests_per_second"] is None
