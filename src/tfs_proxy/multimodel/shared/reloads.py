"""Requests for a reload that come while one is under way share the next: there is one at a time."""

import asyncio
from collections.abc import Callable, Coroutine


class Reloads:
    """``reload`` is never called while it runs."""

    def __init__(self, reload: Callable[[], Coroutine[None, None, None]]) -> None:
        self._reload = reload
        self._requested = 0
        self._begun_for = 0
        self._running: asyncio.Task[None] | None = None

    async def request(self) -> None:
        """Return once a reload that began after this call has ended; raises what that one raised.

        Who is cancelled stops no reload.
        """
        self._requested += 1
        wanted = self._requested
        while True:
            if self._running is None or self._running.done():
                self._begun_for = self._requested
                self._running = asyncio.create_task(self._reload())
            running, covers_this = self._running, self._begun_for >= wanted
            if covers_this:
                await asyncio.shield(running)
                return
            await asyncio.wait({running})
