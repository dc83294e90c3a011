"""The package and its tests stay within `tests/budget.toml`, whose totals only fall: `make budget` lowers it."""

import subprocess
import tomllib
from pathlib import Path
from textwrap import dedent

import pytest

from support.rooms import Size, sizes, tokens_of_code, totals

TOP = Path(__file__).parents[2]
FILE = "tests/budget.toml"
BUDGET = tomllib.loads((TOP / FILE).read_text())
SIZES = sizes()


def test_every_room_has_a_budget() -> None:
    """A new room takes its tokens from others."""
    assert SIZES.keys() == BUDGET["rooms"].keys()


@pytest.mark.parametrize("part", ["src", "tests"])
def test_all_modules_together_stay_within_the_total(part: str) -> None:
    """Whoever needs tokens takes them from elsewhere."""
    assert totals()[part] <= BUDGET["total"][part]


@pytest.mark.skipif(not (TOP / ".git").exists(), reason="needs the history of a checkout")
@pytest.mark.parametrize("part", ["src", "tests"])
def test_a_total_is_at_most_what_earlier_commits_allow(part: str) -> None:
    """The last twenty versions of the file that the branch has, main's and its own, of the same history."""
    commits = _git("rev-list", "--max-count=20", "HEAD", "--", FILE).split()
    versions = [tomllib.loads(_git("show", f"{commit}:{FILE}")) for commit in commits]
    allowed = [then["total"][part] for then in versions if then.get("history") == BUDGET["history"]]
    assert BUDGET["total"][part] <= min(allowed, default=BUDGET["total"][part])


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=TOP, check=True, capture_output=True, text=True).stdout


def test_layout_comments_and_docstrings_are_no_tokens_of_code() -> None:
    """An f-string is one token, whatever stands in it: on Python 3.11, too, which reads it as one."""
    text = '''
        """A docstring, "quoted"."""

        class Point:
            """Another."""

            x: int  # a comment
            """A field's."""

        WIDE = (
            f"{x:{f'{width}'}} wide" "text"
        )
    '''

    assert tokens_of_code(dedent(text)) == len(["class", "Point", ":", "x", ":", "int"]) + len(
        ["WIDE", "=", "(", "f-string", "text", ")"]
    )


@pytest.mark.parametrize("room", SIZES)
def test_a_room_stays_within_its_budget(room: str) -> None:
    """Tokens and modules; a room that needs more takes them from another one's share."""
    allowed = Size(**BUDGET["rooms"][room])
    assert SIZES[room].tokens <= allowed.tokens
    assert SIZES[room].modules <= allowed.modules
