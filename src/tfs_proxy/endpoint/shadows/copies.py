"""Gives copies of requests to a shadow variant: no client waits for what it does with them."""

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable

from msgspec.structs import replace

from tfs_proxy.endpoint.shadows.report import ShadowReport, VariantAnswer

log = logging.getLogger(__name__)

MOST_COPIES = 64
"""Copies that may be under way at once: a slow shadow must not fill the memory."""

AskShadow = Callable[[], Awaitable[VariantAnswer]]
"""Gives the copy to the shadow variant; its answer has no time yet. What it raises counts as no answer."""


class ShadowCopies:
    """Copies a ``share`` (0 to 1) of requests, and compares the answers in its `report`."""

    def __init__(self, report: ShadowReport, share: float, draw: Callable[[], float] = random.random) -> None:
        self.report = report
        self._share, self._draw = share, draw
        self._tasks: set[asyncio.Task[None]] = set()

    def copy(self, inference_id: str, ours: VariantAnswer, ask: AskShadow) -> None:
        """Have the shadow asked too, if the request is among the share; never waits and never raises."""
        if self._draw() >= self._share:
            return
        if len(self._tasks) >= MOST_COPIES:
            self.report.dropped += 1
            return
        task = asyncio.create_task(self._compare(inference_id, ours, ask))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self, seconds: float) -> None:
        """Wait for the copies that are under way, for at most ``seconds``."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=seconds)
        for task in self._tasks:
            task.cancel()

    async def _compare(self, inference_id: str, ours: VariantAnswer, ask: AskShadow) -> None:
        began = time.monotonic()
        try:
            theirs = await ask()
        except Exception as error:  # noqa: BLE001 (whatever it is, the production variant has answered)
            log.warning("shadow variant %s gave no answer: %s", self.report.shadow, error)
            theirs = VariantAnswer(0, "", b"", 0.0)
        self.report.add(inference_id, ours, replace(theirs, seconds=time.monotonic() - began))


def share_of(shadow_weight: float, production_weight: float) -> float:
    """The share of the production variant's requests that is copied: the ratio of the weights, at most 1."""
    return min(1.0, shadow_weight / production_weight) if production_weight > 0 else 1.0
