"""When each loaded model was last asked, by the run's count of requests: `eviction` decides by it."""

import time
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final

LOOK_SECONDS: Final = 1.0


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
        """Note which of the models have been asked; to be called often, it looks once a second."""
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
        """Forget the models that are gone; the names of those that were known until now."""
        gone = [name for name in self._used_at if name not in names]
        for name in gone:
            del self._used_at[name]
            self._counts.pop(name, None)
        return gone
