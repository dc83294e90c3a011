"""The event loop of a script's async functions."""

import asyncio
from collections.abc import Iterator

import pytest

from tfs_proxy.observe.request_record import RequestRecord, current_id, handling
from tfs_proxy.script.event_loop import WorkerLoop


@pytest.fixture
def loop() -> Iterator[WorkerLoop]:
    """One that ends with the test."""
    made = WorkerLoop()
    yield made
    made.close()


async def ids() -> list[str]:
    """The id that is seen in the coroutine, in a task, in a thread, and in the loop's executor."""
    running = asyncio.get_running_loop()
    return [
        current_id(),
        await asyncio.create_task(asyncio.sleep(0, current_id())),
        await asyncio.to_thread(current_id),
        await running.run_in_executor(None, current_id),
    ]


def test_coroutines_and_their_threads_run_in_their_request(loop: WorkerLoop) -> None:
    """Each in its own, although all share one loop."""
    for request_id in ("a", "b"):
        with handling(RequestRecord(request_id)):
            assert loop.run(ids()) == [request_id] * 4
