"""The size of each room stays within `tests/budget.toml`, which only ever falls: `make budget` lowers it."""

import tomllib
from pathlib import Path

import pytest

from support.rooms import Size, sizes

BUDGET = tomllib.loads((Path(__file__).parents[1] / "budget.toml").read_text())
SIZES = sizes()


def test_every_room_has_a_budget() -> None:
    """A new room takes its lines from others."""
    assert SIZES.keys() == BUDGET["rooms"].keys()


@pytest.mark.parametrize("room", SIZES)
def test_a_room_stays_within_its_budget(room: str) -> None:
    """Lines and modules; whoever needs more raises it in a commit of its own, with the reason."""
    allowed = Size(**BUDGET["rooms"][room])
    assert SIZES[room].lines <= allowed.lines
    assert SIZES[room].modules <= allowed.modules
