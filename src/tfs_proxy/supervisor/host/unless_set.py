"""Work that an event ends, as a request to stop ends the start of a process."""

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

Result = TypeVar("Result")


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
