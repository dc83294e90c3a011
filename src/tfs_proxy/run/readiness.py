"""The run's readiness: its phase, the workers' heartbeats and the states of its models.

``/ping`` answers from `Readiness.reason`, ``/live`` from `Readiness.broken`; nothing here waits.
"""

import time
from collections.abc import Callable, Collection, Mapping
from enum import Enum

from tfs_proxy.run.heartbeats import Heartbeats
from tfs_proxy.run.model_states import NO_VERSION, ModelStates

FIRST = "starting"


class StartSteps:
    """The current step of the start, and the time spent in each."""

    def __init__(self) -> None:
        self.current = FIRST
        self._began: float | None = time.monotonic()
        self._seconds: dict[str, float] = {}

    def begin(self, step: str) -> None:
        self.end()
        self.current = step
        self._began = time.monotonic()

    def end(self) -> None:
        """Ends the current step; idempotent."""
        self._seconds = dict(self.seconds())
        self._began = None

    def seconds(self) -> Mapping[str, float]:
        """Seconds by step, including the current one."""
        if self._began is None:
            return self._seconds
        name = self.current.removeprefix(f"{FIRST}: ")
        return {**self._seconds, name: self._seconds.get(name, 0.0) + time.monotonic() - self._began}


class StackState(Enum):
    """States of a stack, and of a run; one that is gone has none.

    Each has the word of ``/metrics`` for a run, and that for one of many models.
    """

    STARTING = "starting", "loading"
    READY = "serving", "ready"
    STOPPING = "stopping", "unloading"
    FAILED = "failed", "failed"

    @property
    def of_run(self) -> str:
        return self.value[0]

    @property
    def of_model(self) -> str:
        return self.value[1]


RUN_STATES = (StackState.STARTING, StackState.READY, StackState.STOPPING)
"""A run that fails ends."""


class Readiness:
    """The readiness of a run or of a stack, by all that was told until now."""

    def __init__(
        self,
        heartbeats: Heartbeats,
        states: ModelStates,
        down: Callable[[], Collection[str]] = tuple,
    ) -> None:
        self.state = StackState.STARTING
        """Phase of the run or stack."""

        self.steps = StartSteps()
        """Steps of the start, with their times."""

        self.heartbeats = heartbeats
        """Watch over the workers."""

        self.states = states
        """States of the models on its model servers."""

        self._models: Collection[str] | None = None
        """Names of its models, if others have some on the same model servers."""

        self._down = down
        """Question for the names of processes that are being restarted."""

    def rely_on(self, states: ModelStates, models: Collection[str] | None = None) -> None:
        """Has models looked up in these states: all of them, or those of these names."""
        self.states = states
        self._models = models

    def begin_serving(self) -> None:
        self.state = StackState.READY
        self.steps.end()

    def begin_stopping(self) -> None:
        self.state = StackState.STOPPING

    def missing(self) -> str | None:
        """The first version that is not available, as a phrase; None if all are."""
        return self.states.missing(self._models)

    def loaded(self) -> frozenset[int]:
        """The instances on which every version is available; none before the run serves."""
        return frozenset() if self.state is StackState.STARTING else self.states.loaded()

    def away(self) -> str | None:
        """The version that will be back soon, as a phrase; None if waiting does not help."""
        return self.missing() if self.state is StackState.READY else None

    def reason(self) -> str | None:
        """The reason why requests can't be served now; None if they can."""
        if self.state is StackState.STARTING:
            # A model without any version may never get one.
            servables = self.states.servables.items()
            missing = (servable for servable, state in servables if state is NO_VERSION)
            return self.steps.current + next((f"; {each} is {NO_VERSION.state}" for each in missing), "")
        if self.state is StackState.STOPPING:
            return "stopping"
        return self.broken() or self.missing() or self.heartbeats.unhealthy or None

    def broken(self) -> str | None:
        """The reason why processes of a run that serves do not serve now, which liveness follows, too."""
        if self.state is not StackState.READY:
            return None
        if down := self._down():
            return f"{', '.join(sorted(down))} is down and being restarted"
        return self.heartbeats.reason()
