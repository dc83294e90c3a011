"""Waiting in the event loop: for blocking work in a thread, and for work that an event ends."""

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from typing import Any, Final, TypeVar

Result = TypeVar("Result")


ENDING_SECONDS: Final = 2.0


async def in_daemon_thread(
    work: Callable[[], Result], name: str, cancelled: threading.Event | None = None
) -> Result:
    """Does blocking work in a thread; if cancelled, it is left behind and does not delay the exit.

    Work that looks at ``cancelled`` has a moment to end.
    """
    done: Future[Result] = Future()
    done.set_running_or_notify_cancel()  # it can't be cancelled: only waiting for it can

    def run() -> None:
        try:
            done.set_result(work())
        except BaseException as error:  # noqa: BLE001 - it is raised again in the loop
            done.set_exception(error)

    threading.Thread(target=run, name=name, daemon=True).start()
    waiting = asyncio.wrap_future(done)
    try:
        return await asyncio.shield(waiting)
    except asyncio.CancelledError:
        if cancelled is not None:
            cancelled.set()
            await asyncio.wait({waiting}, timeout=ENDING_SECONDS)
        raise
    finally:
        waiting.cancel()


async def unless_set(event: asyncio.Event, work: Awaitable[Result]) -> Result | None:
    """The result of ``work``, which is cancelled as soon as ``event`` is set; None if it had none by then.

    Raises what ``work`` does.
    """
    working = asyncio.ensure_future(work)
    waiting = asyncio.create_task(event.wait())
    try:
        await asyncio.wait({working, waiting}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            working.cancel()
            await asyncio.wait({working})
    finally:
        waiting.cancel()
        working.cancel()
    return None if working.cancelled() else working.result()


async def together(*work: Awaitable[None]) -> None:
    """Awaits all concurrently; raises the first error, and then leaves nothing running."""
    tasks = [asyncio.ensure_future(each) for each in work]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        for task in done:
            task.result()
    finally:
        await cancel(*tasks)


async def while_watched(work: Awaitable[None], watch: Awaitable[None]) -> None:
    """Awaits ``work``. Raises what ``watch`` does, if that is sooner, and then leaves nothing running."""
    doing = asyncio.ensure_future(work)
    watching = asyncio.ensure_future(watch)
    try:
        done, _ = await asyncio.wait({doing, watching}, return_when=asyncio.FIRST_COMPLETED)
        first = doing if doing in done else watching
        first.result()
    finally:
        await cancel(doing, watching)


async def cancel(*tasks: asyncio.Future[Any]) -> None:
    """Cancels ``tasks`` and waits for their end; their errors are dropped."""
    for task in tasks:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError, Exception):
            await task
