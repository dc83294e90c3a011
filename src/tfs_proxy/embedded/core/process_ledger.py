"""Memory that large requests take together in this process: REST and gRPC reserve it before they decode."""

import asyncio
import threading
import time
from concurrent.futures import Future
from typing import Any

from tfs_proxy.values.errors import Overloaded
from tfs_proxy.values.memory import DEFAULT_BODY_BYTES, DEFAULT_DECODED_BYTES, MemoryBudget

TOTAL_BYTES = 10 * DEFAULT_BODY_BYTES
WAIT_SECONDS = 5.0
_LOOK_SECONDS = 0.05
_REMEDY = "send it in parts."


class ProcessLedger:
    """Adds up what large requests reserve; used by all threads. One request alone has no limit here."""

    def __init__(self, limit_bytes: int = TOTAL_BYTES, wait_seconds: float = WAIT_SECONDS) -> None:
        self._limit_bytes = limit_bytes
        self._wait_seconds = wait_seconds
        self._held = 0
        self._freed = threading.Condition()

    def reserve(self, size_bytes: int) -> None:
        """Wait for ``size_bytes`` to be free; raises Overloaded without them."""
        with self._freed:
            if not self._freed.wait_for(lambda: self._fits(size_bytes), self._wait_seconds):
                raise _overloaded()
            self._held += size_bytes

    async def reserve_soon(self, size_bytes: int) -> None:
        """The same for an event loop, which must not wait."""
        deadline = time.monotonic() + self._wait_seconds
        while True:
            with self._freed:
                if self._fits(size_bytes):
                    self._held += size_bytes
                    return
            if time.monotonic() >= deadline:
                raise _overloaded()
            await asyncio.sleep(_LOOK_SECONDS)

    def release(self, size_bytes: int) -> None:
        with self._freed:
            self._held -= size_bytes
            self._freed.notify_all()

    def _fits(self, size_bytes: int) -> bool:
        return not self._held or self._held + size_bytes <= self._limit_bytes


class RequestLedger:
    """One request's part of a `ProcessLedger`: what it reserved ahead is used first."""

    __slots__ = ("_held", "_is_used_on", "_process", "_used")

    def __init__(self, process: ProcessLedger) -> None:
        self._process = process
        self._held = self._used = 0
        self._is_used_on = False

    @property
    def held(self) -> int:
        """The bytes that this request has of the process."""
        return self._held

    def keep_ahead(self, size_bytes: int) -> None:
        """Give back what was reserved beyond ``size_bytes``, and is not in use."""
        surplus = self._held - max(size_bytes, self._used)
        if surplus > 0:
            self._process.release(surplus)
            self._held -= surplus

    async def reserve_ahead(self, size_bytes: int) -> None:
        """Wait for ``size_bytes`` that `reserve` gives later; raises Overloaded without them."""
        await self._process.reserve_soon(size_bytes)
        self._held += size_bytes

    def reserve(self, size_bytes: int) -> None:
        """Wait for ``size_bytes`` to be free; raises Overloaded without them."""
        missing = self._used + size_bytes - self._held
        if missing > 0:
            self._process.reserve(missing)
            self._held += missing
        self._used += size_bytes

    def release(self, size_bytes: int) -> None:
        """Give bytes back to the request, which may need them again."""
        self._used -= size_bytes

    def close(self) -> None:
        """Give everything back to the process, unless a thread still uses it; idempotent."""
        if self._held and not self._is_used_on:
            self._process.release(self._held)
            self._held = self._used = 0

    def close_after(self, running: Future[Any]) -> None:
        """Give everything back once a thread is done, which goes on although its caller no longer waits."""

        def close_now(_: Future[Any]) -> None:
            self._is_used_on = False
            self.close()

        self._is_used_on = True
        running.add_done_callback(close_now)


def budget_of(ledger: RequestLedger | None = None) -> MemoryBudget:
    """The budget of one request, whose refusals say what a client of this server can do."""
    return MemoryBudget(DEFAULT_DECODED_BYTES, ledger, remedy=_REMEDY)


def _overloaded() -> Overloaded:
    return Overloaded("Other large requests are using the memory that this one needs: try again.")
