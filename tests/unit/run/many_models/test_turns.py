"""Reloads that are asked for at the same time, and turns of loads."""

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any

from support.virtual_time import run_in_virtual_time
from tfs_proxy.run.many_models.admission import turn


async def begun_at(loads: Sequence[Coroutine[Any, Any, float]]) -> list[float]:
    times = await asyncio.gather(*loads)
    return [time - times[0] for time in times]


async def load(turns: asyncio.Semaphore, seconds: float) -> float:
    """The time at which a load of so many seconds begins."""
    async with turn(turns):
        begun = asyncio.get_running_loop().time()
        await asyncio.sleep(seconds)
    return begun


def test_a_load_that_hangs_holds_up_no_other_for_long() -> None:
    async def scene() -> list[float]:
        turns = asyncio.Semaphore(1)
        return await begun_at([load(turns, seconds) for seconds in (100.0, 200.0, 5.0, 5.0)])

    assert run_in_virtual_time(scene()) == [0.0, 30.0, 60.0, 65.0]


def test_a_load_that_is_cancelled_gives_its_turn_back() -> None:
    """The next one begins at once."""

    async def scene() -> float:
        turns = asyncio.Semaphore(1)
        cancelled = asyncio.create_task(load(turns, 100.0))
        await asyncio.sleep(1.0)
        cancelled.cancel()
        now = asyncio.get_running_loop().time()
        return await load(turns, 1.0) - now

    assert run_in_virtual_time(scene()) == 0.0
