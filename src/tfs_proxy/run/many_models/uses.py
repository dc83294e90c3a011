"""Times of the last request of each loaded model, by the counts of all doors; and models to unload."""

import asyncio
import re
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final

from msgspec import Struct

from tfs_proxy.run.scraping import ANSWER_SECONDS, ModelServerMetrics, refresh_all
from tfs_proxy.values.deployment import Instance

LOOK_SECONDS: Final = 1.0
COUNT_SECONDS: Final = 5.0

_COUNTED: Final = re.compile(
    r'^:tensorflow:serving:request_count\{[^}]*model_name="([^"]+)"[^}]*\} (\d+)', re.MULTILINE
)


class ServedCounts:
    """Requests of each model as the model servers count them: nobody else sees which are called by gRPC."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def of(self, names: Iterable[str]) -> int:
        return sum(self._counts[name] for name in names)

    async def follow(self, instances: Iterable[Instance], metrics_path: str | None, seconds: float) -> None:
        """Asks the model servers every so many seconds; never returns."""
        metrics = ModelServerMetrics()
        metrics.begin(instances, metrics_path)
        while True:
            await refresh_all(metrics.answers, ANSWER_SECONDS)
            counts: Counter[str] = Counter()
            for text in metrics.texts().values():
                for name, count in _COUNTED.findall(text):
                    counts[name] += int(count)
            self._counts = counts
            await asyncio.sleep(seconds)


class LastUses:
    """The time of each model's last request; ``requests_of`` counts those of a model so far."""

    def __init__(
        self, requests_of: Callable[[str], int], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._requests_of, self._clock = requests_of, clock
        self._used_at: dict[str, float] = {}
        self._counts: dict[str, int] = {}
        self._looked_at = clock()

    def used_at(self, name: str) -> float:
        """The time of the model's last use on the clock, in seconds; 0 if it was never loaded."""
        return self._used_at.get(name, 0.0)

    def note_load(self, name: str) -> None:
        """A model that has just been loaded counts as used."""
        self._used_at[name] = self._clock()

    def look(self, names: Iterable[str]) -> None:
        """Notes which of the models were asked; call it often, it looks once a second."""
        now = self._clock()
        if now - self._looked_at < LOOK_SECONDS:
            return
        self._looked_at = now
        for name in names:
            count = self._requests_of(name)
            if count != self._counts.get(name, 0):
                self._counts[name] = count
                self._used_at[name] = now

    def forget_all_but(self, names: Collection[str]) -> Sequence[str]:
        """Forgets the models that are gone; returns the names of those that were known until now."""
        gone = [name for name in self._used_at if name not in names]
        for name in gone:
            del self._used_at[name]
            self._counts.pop(name, None)
        return gone


class ModelUse(Struct, frozen=True):
    """A loaded model: its memory, the time of its last request, and true if one is being answered.

    ``used_at`` is on the clock of the caller, in seconds; a model without a request counts from its load.
    """

    name: str
    memory_bytes: int
    used_at: float
    in_use: bool = False


def least_recently_used(models: Iterable[ModelUse], missing_bytes: int) -> tuple[str, ...]:
    """Names of the models to unload, in order, to release ``missing_bytes``; at least one.

    With 0 bytes one place is wanted. Models in use stay. Nothing if all others together are not enough:
    then it helps nobody to unload them.
    """
    leaving: list[str] = []
    for model in _longest_idle_first(models):
        leaving.append(model.name)
        missing_bytes -= model.memory_bytes
        if missing_bytes <= 0:
            return tuple(leaving)
    return ()


def idle(models: Iterable[ModelUse], now: float, idle_seconds: float) -> tuple[str, ...]:
    """Names of the models without a request for ``idle_seconds``, the longest idle first; 0 is never."""
    if idle_seconds == 0:
        return ()
    return tuple(model.name for model in _longest_idle_first(models) if now - model.used_at >= idle_seconds)


def _longest_idle_first(models: Iterable[ModelUse]) -> list[ModelUse]:
    unused = (model for model in models if not model.in_use)
    return sorted(unused, key=lambda model: (model.used_at, model.name))
