"""The steps of a start with the seconds that each took, for `/ping` and `/metrics`."""

from collections.abc import Callable, Mapping

FIRST = "starting"
_PREFIX = f"{FIRST}: "


class StartSteps:
    """The step that the start is at, and how long it has been in each."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.current = FIRST
        self._clock = clock
        self._began: float | None = clock()
        self._seconds: dict[str, float] = {}

    def begin(self, step: str) -> None:
        """Note that the next step begins."""
        self.end()
        self.current, self._began = step, self._clock()

    def end(self) -> None:
        """Note that the current step is over; idempotent."""
        self._seconds = dict(self.seconds())
        self._began = None

    def seconds(self) -> Mapping[str, float]:
        """Seconds by step, with those of the current one so far."""
        if self._began is None:
            return self._seconds
        name = self.current.removeprefix(_PREFIX)
        return {**self._seconds, name: self._seconds.get(name, 0.0) + self._clock() - self._began}
