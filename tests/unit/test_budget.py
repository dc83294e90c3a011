"""The package and its tests stay within `tests/budget.toml`, whose totals only fall: `make budget` lowers it."""

import subprocess
import tomllib
from pathlib import Path

import pytest

from support.rooms import Size, sizes, totals

TOP = Path(__file__).parents[2]
FILE = "tests/budget.toml"
BUDGET = tomllib.loads((TOP / FILE).read_text())
SIZES = sizes()


def test_every_room_has_a_budget() -> None:
    """A new room takes its lines from others."""
    assert SIZES.keys() == BUDGET["rooms"].keys()


@pytest.mark.parametrize("part", ["src", "tests"])
def test_all_modules_together_stay_within_the_total(part: str) -> None:
    """Whoever needs lines takes them from elsewhere."""
    assert totals()[part] <= BUDGET["total"][part]


@pytest.mark.skipif(not (TOP / ".git").exists(), reason="needs the history of a checkout")
@pytest.mark.parametrize("part", ["src", "tests"])
def test_a_total_is_at_most_what_earlier_commits_allow(part: str) -> None:
    """The last twenty versions of the file that the branch has: main's, and its own."""
    commits = _git("rev-list", "--max-count=20", "HEAD", "--", FILE).split()
    totals_then = [tomllib.loads(_git("show", f"{commit}:{FILE}")).get("total", {}) for commit in commits]
    assert BUDGET["total"][part] <= min([then[part] for then in totals_then if part in then], default=10**9)


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=TOP, check=True, capture_output=True, text=True).stdout


@pytest.mark.parametrize("room", SIZES)
def test_a_room_stays_within_its_budget(room: str) -> None:
    """Lines and modules; a room that needs more takes them from another one's share."""
    allowed = Size(**BUDGET["rooms"][room])
    assert SIZES[room].lines <= allowed.lines
    assert SIZES[room].modules <= allowed.modules
