"""The life of every run: serve until a stop signal, then drain; a second signal ends it at once."""

import asyncio
import contextlib
import logging
import signal
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from typing import Any

from tfs_proxy.run.host import sockets
from tfs_proxy.run.host.processes import reason, stop_signals
from tfs_proxy.run.host.sockets import Listener
from tfs_proxy.run.process import ChildProcess

log = logging.getLogger(__name__)

LAST_STEPS_SECONDS = 3.0
"""For processes that get no more requests to end, also if the time to stop is over."""


TWICE_SECONDS = 0.1
"""A SIGTERM so soon after another one is the same: `timeout` signals its command, then the process group."""


class RunLoop:
    """Serves until SIGTERM, SIGINT or SIGHUP, then drains; a second signal stops waiting."""

    def __init__(self, stop_seconds: float) -> None:
        self._stop_seconds = stop_seconds
        self._signals: asyncio.Queue[signal.Signals] = asyncio.Queue()
        self._terminated = -TWICE_SECONDS

    async def run(self, serve: Coroutine[None, None, None], drain: Callable[[bool], Awaitable[None]]) -> None:
        """Runs ``serve`` until it raises or a signal comes, then always ``drain``.

        ``drain`` gets True if a signal is the reason.
        """
        loop = asyncio.get_running_loop()
        for number in stop_signals():
            loop.add_signal_handler(number, self._take, number)
        serving = asyncio.create_task(serve)
        stopping = asyncio.create_task(self._signals.get())
        try:
            await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if serving.done():
                serving.result()
            else:
                log.info("%s, requests in flight have %g s", reason(stopping.result()), self._stop_seconds)
        finally:
            stop_requested = not serving.done()
            await cancel(serving, stopping)
            await drain(stop_requested)

    def _take(self, number: signal.Signals) -> None:
        if number == signal.SIGTERM:
            before, self._terminated = self._terminated, time.monotonic()
            if self._terminated - before < TWICE_SECONDS:
                return
        self._signals.put_nowait(number)

    async def accept_pending(self, listeners: Sequence[Listener], deadline: float) -> None:
        """Waits for pending connections to be accepted, at most until ``deadline``."""
        await sockets.accept_pending(
            listeners, lambda: not self._signals.empty() or time.monotonic() > deadline
        )

    async def stop(self, stopping: Coroutine[None, None, None], children: Iterable[ChildProcess]) -> None:
        """Awaits ``stopping``, which stops ``children``; at a second signal kills them first."""
        draining = asyncio.create_task(stopping)
        second_signal = asyncio.create_task(self._signals.get())
        await asyncio.wait({second_signal, draining}, return_when=asyncio.FIRST_COMPLETED)
        if not draining.done():
            log.warning("%s again: not waiting any longer", second_signal.result().name)
            for child in children:
                child.signal_group(signal.SIGKILL)
        await draining
        await cancel(second_signal)


async def together(*work: Awaitable[None]) -> None:
    """Awaits all concurrently; raises the first error, and then leaves nothing running."""
    tasks = [asyncio.ensure_future(each) for each in work]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        for task in done:
            task.result()
    finally:
        await cancel(*tasks)


async def cancel(*tasks: asyncio.Future[Any]) -> None:
    """Cancels ``tasks`` and waits for their end; their errors are dropped."""
    for task in tasks:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError, Exception):
            await task
