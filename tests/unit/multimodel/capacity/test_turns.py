"""Turns of loads, in virtual time."""

import asyncio

from support.virtual_time import run_in_virtual_time
from tfs_proxy.multimodel.capacity.turns import Turns


async def load(turns: Turns, seconds: float) -> float:
    """The time at which a load of so many seconds begins."""
    async with turns.turn():
        begun = asyncio.get_running_loop().time()
        await asyncio.sleep(seconds)
    return begun


def test_loads_take_turns() -> None:
    """Two of four at a time."""

    async def scene() -> list[float]:
        turns = Turns(2)
        return await asyncio.gather(*(load(turns, 10.0) for _ in range(4)))

    first, second, third, fourth = run_in_virtual_time(scene())
    assert (second - first, third - first, fourth - first) == (0.0, 10.0, 10.0)


def test_a_load_that_hangs_holds_up_no_other_for_long() -> None:
    """Its turn ends before it does; that gives nobody two turns."""

    async def scene() -> list[float]:
        turns = Turns(1, longest_seconds=30.0)
        return await asyncio.gather(
            load(turns, 100.0), load(turns, 200.0), load(turns, 5.0), load(turns, 5.0)
        )

    first, second, third, fourth = run_in_virtual_time(scene())
    assert (second - first, third - first, fourth - first) == (30.0, 60.0, 65.0)


def test_a_load_that_is_cancelled_gives_its_turn_back() -> None:
    """The next one begins at once."""

    async def scene() -> float:
        turns = Turns(1)
        cancelled = asyncio.create_task(load(turns, 100.0))
        await asyncio.sleep(1.0)
        cancelled.cancel()
        now = asyncio.get_running_loop().time()
        return await load(turns, 1.0) - now

    assert run_in_virtual_time(scene()) == 0.0
