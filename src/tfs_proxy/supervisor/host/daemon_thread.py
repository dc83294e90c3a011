"""Blocking work beside the event loop, in a thread that never holds up the end of the process."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

Result = TypeVar("Result")


async def in_daemon_thread(work: Callable[[], Result], name: str) -> Result:
    """Do blocking work beside the loop; if cancelled, it is left behind and does not hold up the exit."""
    done: Future[Result] = Future()
    done.set_running_or_notify_cancel()  # it can't be cancelled: only waiting for it can

    def run() -> None:
        try:
            done.set_result(work())
        except BaseException as error:  # noqa: BLE001 - it is raised again in the loop
            done.set_exception(error)

    threading.Thread(target=run, name=name, daemon=True).start()
    return await asyncio.wrap_future(done)
