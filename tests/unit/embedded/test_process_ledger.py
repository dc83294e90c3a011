"""What large requests of an embedded server reserve together, without a server."""

import asyncio
import threading
from concurrent.futures import Future
from typing import Any

import pytest

from tfs_proxy.embedded.core.process_ledger import ProcessLedger, RequestLedger
from tfs_proxy.errors import Overloaded


def full(limit_bytes: int, wait_seconds: float = 0.0) -> ProcessLedger:
    """A ledger that has nothing left."""
    process = ProcessLedger(limit_bytes, wait_seconds)
    process.reserve(limit_bytes)
    return process


def test_a_request_waits_until_another_is_done() -> None:
    """It goes on once its memory is free."""
    process = full(100, wait_seconds=60)
    released: list[int] = []

    def release() -> None:
        released.append(100)
        process.release(100)

    threading.Timer(0.05, release).start()

    process.reserve(60)

    assert released == [100]
    process.reserve(40)


def test_a_request_waits_on_an_event_loop() -> None:
    """The loop goes on with other work meanwhile."""

    async def wait() -> None:
        process = full(100, wait_seconds=60)
        asyncio.get_running_loop().call_later(0.01, process.release, 100)
        await process.reserve_soon(60)
        with pytest.raises(Overloaded):
            await full(100).reserve_soon(1)

    asyncio.run(wait())


def test_a_request_does_not_wait_for_ever() -> None:
    """Its refusal says what to do."""
    with pytest.raises(Overloaded, match=r"^Other large requests are using the memory .* try again"):
        RequestLedger(full(100)).reserve(1)


def test_one_request_alone_may_be_larger() -> None:
    """Else it could never be answered; the next one waits for it."""
    process = ProcessLedger(100, 0.0)
    RequestLedger(process).reserve(1000)

    with pytest.raises(Overloaded):
        RequestLedger(process).reserve(1)


def test_what_was_reserved_ahead_is_used_first() -> None:
    """A request that has begun does not wait for others that wait for the same."""
    process = ProcessLedger(100, 0.0)
    request = RequestLedger(process)
    asyncio.run(request.reserve_ahead(100))

    request.reserve(60)
    request.reserve(40)
    with pytest.raises(Overloaded):
        RequestLedger(process).reserve(1)

    request.close()
    request.close()
    RequestLedger(process).reserve(100)


def test_what_a_thread_still_uses_is_not_free() -> None:
    """Nobody waits for its answer any more, but it goes on."""
    process = ProcessLedger(100, 0.0)
    request = RequestLedger(process)
    request.reserve(100)
    running: Future[Any] = Future()
    request.close_after(running)

    request.close()
    with pytest.raises(Overloaded):
        process.reserve(1)

    running.set_result(None)
    process.reserve(100)
