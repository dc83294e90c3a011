"""Reloads that are asked for at the same time, and turns of loads."""

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any

from support.virtual_time import run_in_virtual_time
from tfs_proxy.run.many_models.admission import turn
from tfs_proxy.run.many_models.shared_servers import Reloads
from tfs_proxy.values.errors import ModelLoadError


class Server:
    """A reload that a test holds; ``seen`` has what was wanted when each began."""

    def __init__(self) -> None:
        self.wanted = 0
        self.seen: list[int] = []
        self.running = 0
        self.go_on = asyncio.Event()
        self.error: Exception | None = None

    async def reload(self) -> None:
        self.running += 1
        assert self.running == 1
        self.seen.append(self.wanted)
        await self.go_on.wait()
        self.running -= 1
        if self.error is not None:
            raise self.error


async def begun(count: int, reloads: Reloads, server: Server) -> list[asyncio.Task[None]]:
    tasks = []
    for _ in range(count):
        server.wanted += 1
        tasks.append(asyncio.create_task(reloads.request()))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    return tasks


def test_requests_during_a_reload_share_the_next() -> None:
    async def run() -> list[int]:
        server = Server()
        reloads = Reloads(server.reload)
        tasks = await begun(4, reloads, server)
        server.go_on.set()
        await asyncio.gather(*tasks)
        return server.seen

    assert asyncio.run(run()) == [1, 4]


def test_all_who_wait_for_a_reload_learn_of_its_failure() -> None:
    async def run() -> list[str]:
        server = Server()
        server.error = ModelLoadError("refused")
        server.go_on.set()
        reloads = Reloads(server.reload)
        results = await asyncio.gather(reloads.request(), reloads.request(), return_exceptions=True)
        server.error = None
        await reloads.request()
        return [repr(result) for result in results]

    assert asyncio.run(run()) == ["ModelLoadError('refused')"] * 2


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


def test_who_is_cancelled_stops_no_reload() -> None:
    """Others wait for the same one."""

    async def run() -> list[int]:
        server = Server()
        reloads = Reloads(server.reload)
        leaves, stays, comes_later = await begun(3, reloads, server)
        leaves.cancel()
        comes_later.cancel()
        server.go_on.set()
        await stays
        return server.seen

    assert asyncio.run(run()) == [1, 3]
