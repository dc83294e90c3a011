"""The latest answer of somebody who may be slow, for a scrape that must not wait."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Generic, TypeVar

Answer = TypeVar("Answer")

SCRAPE_WAIT_SECONDS = 0.004
"""What a scrape waits at most; who is later is shown as it was the last time."""


class LatestAnswer(Generic[Answer]):
    """Keeps the last answer of ``ask``; ``value`` is None before the first, and after a failure.

    ``ask`` returns None for a failure, and has a limit of its own: until then nobody is asked again.
    """

    def __init__(
        self, ask: Callable[[], Awaitable[Answer | None]], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._ask = ask
        self._clock = clock
        self._asking: asyncio.Task[None] | None = None
        self._answered_at = 0.0
        self.value: Answer | None = None

    def refresh(self) -> "asyncio.Task[None]":
        """Ask, unless that is under way; the task that waits for the answer."""
        if self._asking is None or self._asking.done():
            self._asking = asyncio.create_task(self._wait_for_answer())
        return self._asking

    @property
    def age_seconds(self) -> float:
        """How old ``value`` is."""
        return self._clock() - self._answered_at

    async def _wait_for_answer(self) -> None:
        self.value = await self._ask()
        self._answered_at = self._clock()


async def refresh_all(
    answers: Iterable[LatestAnswer[Any]], wait_seconds: float = SCRAPE_WAIT_SECONDS
) -> None:
    """Ask for all of them at the same time, and wait for them, but not longer than ``wait_seconds``."""
    tasks = [answer.refresh() for answer in answers]
    if tasks:
        await asyncio.wait(tasks, timeout=wait_seconds)
