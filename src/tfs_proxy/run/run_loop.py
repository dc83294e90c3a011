"""The life of every run: serve until a stop signal, then drain; SIGINT or SIGQUIT ends the drain at once."""

import asyncio
import logging
import signal
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence

from tfs_proxy.run.host import sockets
from tfs_proxy.run.host.processes import reason, stop_signals
from tfs_proxy.run.host.sockets import Listener
from tfs_proxy.run.host.waiting import cancel
from tfs_proxy.run.process import ChildProcess

log = logging.getLogger(__name__)

LAST_STEPS_SECONDS = 3.0
"""For processes that get no more requests to end, also if the time to stop is over."""


def last_seconds(deadline: float) -> float:
    """Seconds that such processes have, until ``deadline`` of `time.monotonic` or for their last steps."""
    return max(deadline - time.monotonic(), LAST_STEPS_SECONDS)


COUNTED_SECONDS = 0.2
"""From the end of the time to stop until processes are killed: requests in flight are counted meanwhile."""

HURRYING = frozenset({signal.SIGINT, signal.SIGQUIT})
"""Signals that end a drain at once. Others come twice without being meant so, as from `docker stop`."""

CUT_OFF = 7
"""Exit status of a run whose time to stop was too short for the requests in flight."""


class RunLoop:
    """Serves until a stop signal, then drains; while draining, signals of `HURRYING` stop waiting."""

    def __init__(self, stop_seconds: float) -> None:
        self._stop_seconds = stop_seconds
        self._signals: asyncio.Queue[signal.Signals] = asyncio.Queue()
        self._hurried = asyncio.Event()
        self._draining = self._is_told = False
        self._cut_off = 0

    async def serve_and_drain(
        self, serve: Coroutine[None, None, None], drain: Callable[[bool], Awaitable[None]]
    ) -> int:
        """Runs ``serve`` until it raises or a signal comes, then always ``drain``; returns the exit status.

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
            self._draining = True
            await cancel(serving, stopping)
            await drain(stop_requested)
        if not self._cut_off:
            return 0
        hurried = self._hurried.is_set()
        why = "not waited for" if hurried else f"TFS_PROXY_STOP_SECONDS={self._stop_seconds:g} was too short"
        log.error("requests in flight that were cut off: %d (%s)", self._cut_off, why)
        return 0 if hurried else CUT_OFF

    def _take(self, number: signal.Signals) -> None:
        if not self._draining:
            self._signals.put_nowait(number)
        elif number in HURRYING:
            log.warning("%s: not waiting any longer", number.name)
            self._hurried.set()
        elif not self._is_told:
            self._is_told = True
            log.info("%s again changes nothing: requests in flight go on; SIGINT would end them", number.name)

    async def accept_pending(self, listeners: Sequence[Listener], deadline: float) -> None:
        """Waits for pending connections to be accepted, at most until ``deadline``."""
        await sockets.accept_pending(listeners, lambda: self._hurried.is_set() or time.monotonic() > deadline)

    async def stop(
        self,
        stopping: Callable[[float], Coroutine[None, None, None]],
        children: Iterable[ChildProcess],
        deadline: float,
        left: Callable[[], int],
    ) -> None:
        """Awaits ``stopping``, which gets a deadline and stops ``children``.

        Kills them first at a signal of `HURRYING`, or at ``deadline`` if requests are ``left``.
        """
        draining = asyncio.create_task(stopping(deadline + COUNTED_SECONDS))
        hurrying = asyncio.create_task(self._hurried.wait())
        either = {draining, hurrying}
        seconds = max(deadline - time.monotonic(), 0.0)
        await asyncio.wait(either, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        self._cut_off = 0 if draining.done() else left()
        if not self._cut_off:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not draining.done():
            for child in children:
                child.kill()
        await draining
        await cancel(hurrying)
