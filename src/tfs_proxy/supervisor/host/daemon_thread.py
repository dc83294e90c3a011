"""Blocking work beside the event loop, in a thread that never holds up the end of the process."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Final, TypeVar

Result = TypeVar("Result")


ENDING_SECONDS: Final = 2.0
"""For work to see that it has been cancelled."""


async def in_daemon_thread(
    work: Callable[[], Result], name: str, cancelled: threading.Event | None = None
) -> Result:
    """Do blocking work beside the loop; if cancelled, it is left behind and does not hold up the exit.

    Work that looks at ``cancelled`` is told so, and has a moment to end.
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
