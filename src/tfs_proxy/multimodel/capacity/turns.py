"""Turns of loads: not all models load at once, but one whose script hangs in its import holds up no other."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

LONGEST_TURN_SECONDS: Final = 30.0
"""A load that takes longer goes on without its turn: it mostly waits by then."""


class Turns:
    """``count`` turns at a time; each ends with its block, or after ``longest_seconds``."""

    def __init__(self, count: int, longest_seconds: float = LONGEST_TURN_SECONDS) -> None:
        self._free = asyncio.Semaphore(count)
        self._longest_seconds = longest_seconds

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait for a turn, and have it."""
        await self._free.acquire()
        has_turn = True

        def end() -> None:
            nonlocal has_turn
            if has_turn:
                has_turn = False
                self._free.release()

        ending = asyncio.get_running_loop().call_later(self._longest_seconds, end)
        try:
            yield
        finally:
            ending.cancel()
            end()
