"""The package stays within `tests/budget.toml`, whose total only falls: `make budget` lowers it."""

import tomllib
from pathlib import Path

import pytest

from support.rooms import Size, sizes, total

BUDGET = tomllib.loads((Path(__file__).parents[1] / "budget.toml").read_text())
SIZES = sizes()


def test_every_room_has_a_budget() -> None:
    """A new room takes its lines from others."""
    assert SIZES.keys() == BUDGET["rooms"].keys()


def test_all_rooms_together_stay_within_the_total() -> None:
    """Whoever needs lines takes them from elsewhere."""
    assert total() <= BUDGET["total"]["lines"]


@pytest.mark.parametrize("room", SIZES)
def test_a_room_stays_within_its_budget(room: str) -> None:
    """Lines and modules; a room that needs more takes them from another one's share."""
    allowed = Size(**BUDGET["rooms"][room])
    assert SIZES[room].lines <= allowed.lines
    assert SIZES[room].modules <= allowed.modules
