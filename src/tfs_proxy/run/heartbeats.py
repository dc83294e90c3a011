"""The state of each worker, as workers POST it to the control API, for `Readiness` and gunicorn's master.

A worker that is silent for a while is missing. gunicorn's master replaces a worker with calls of the
script that hang within a few seconds, and the container stays in service. It is unhealthy if every worker
is full of hanging calls, if no new worker comes up, or if new ones hang as well and answer nothing.
"""

import asyncio
import time
from collections.abc import Callable, Mapping

from msgspec import Struct

from tfs_proxy.values.deployment import BootFailure, KnownWorkers, WorkerPhase, WorkerState

SILENCE_SECONDS = 10.0
"""A worker that has been silent for so long is missing."""

LOOK_SECONDS = 0.01
STARTS_IN_VAIN = 3
"""Number of times that each worker may start to load without any worker serving."""

MORE_THAN_WORKERS = 2
"""This many more workers than configured must hang in a row, with no answer in between."""


class WorkerCounts(Struct):
    """Counts over all stacks of a run: workers that have begun to load the application, captured calls."""

    starts: int = 0
    captured: int = 0
    uncaptured: int = 0


class _Heard(Struct):
    """A worker's last state with its time, and the time since which calls of the script hang in it."""

    state: WorkerState
    at: float
    hangs_since: float | None = None


class Heartbeats:
    """The last state of each worker, which counts for ``silence_seconds``.

    ``wanted`` is how many workers there should be, ``replaced_seconds`` how long it may take to replace one.
    ``booted`` is set once a worker serves. ``loading`` has all that have begun to load the application since
    `forget_loading`, ``counts`` has them all, those of former stacks included; ``failure`` is why the latest
    one can't load it.
    """

    def __init__(
        self,
        silence_seconds: float = SILENCE_SECONDS,
        clock: Callable[[], float] = time.monotonic,
        wanted: int = 1,
        replaced_seconds: float = 300.0,
        counts: WorkerCounts | None = None,
    ) -> None:
        self.wanted = wanted
        self.booted = asyncio.Event()
        self.failure: BootFailure | None = None
        self.loading: set[int] = set()
        self.counts = WorkerCounts() if counts is None else counts
        self._silence_seconds, self._replaced_seconds = silence_seconds, replaced_seconds
        self._clock = clock
        self._heard: dict[int, _Heard] = {}
        self._starts_in_vain = 0
        self._hang_in_a_row = 0

    def hear(self, state: WorkerState) -> None:
        now, known = self._clock(), self._heard.get(state.pid)
        since = None if known is None else known.hangs_since
        before = WorkerState(state.pid, state.phase) if known is None else known.state
        self.counts.captured += max(state.captured - before.captured, 0)
        self.counts.uncaptured += max(state.uncaptured - before.uncaptured, 0)
        if state.answered:
            self._hang_in_a_row = 0
        if state.hangs and since is None:
            since = now
            self._hang_in_a_row += 1
        self._heard[state.pid] = _Heard(state, now, since)
        if state.phase is WorkerPhase.BEGINS:
            self.loading.add(state.pid)
            self.counts.starts += 1
            self._starts_in_vain += 1
            self._heard = self._heard_within(self._replaced_seconds)
        elif state.phase is WorkerPhase.SERVES:
            self._starts_in_vain = 0
            self.booted.set()
        elif state.failure is not None and (known is None or known.state.failure is None):
            self.failure = state.failure  # said once: it may have been dealt with since

    def expect(self, workers: int) -> None:
        """Sets how many workers there should be."""
        self.wanted = workers

    async def until_alive(self, *, every_worker: bool) -> None:
        """Returns once a worker serves, or as many as there should be."""
        await self.booted.wait()
        while len(self.alive) < (self.wanted if every_worker else 1):  # noqa: ASYNC110 - workers come and go
            await asyncio.sleep(LOOK_SECONDS)

    def forget(self) -> None:
        """Drops all states: their workers are gone."""
        self._heard.clear()
        self.booted.clear()

    def forget_loading(self) -> None:
        """Drops the loads so far, since other workers are about to load the application."""
        self.loading.clear()
        self.failure = None

    @property
    def alive(self) -> Mapping[int, WorkerState]:
        """The states of workers that serve and are not missing, by pid."""
        return self._in_phase(WorkerPhase.SERVES)

    def known(self) -> KnownWorkers:
        """The workers, for gunicorn's master."""
        alive = self.alive
        hanging = frozenset(pid for pid, state in alive.items() if state.hangs)
        failed = self._in_phase(WorkerPhase.FAILED)
        return KnownWorkers(frozenset(alive) - hanging, hanging, frozenset(failed))

    def loading_lines(self) -> list[str]:
        """Lines of the script at which loading workers are."""
        states = (heard.state for heard in self._heard.values())
        return [state.line for state in states if state.phase is WorkerPhase.LOADS and state.line]

    def lost(self) -> str | None:
        """The reason why no worker answers, as a phrase; None if one does, or is about to.

        A killed worker counts as long as it is not missing: another one takes its place.
        """
        if self._starts_in_vain > STARTS_IN_VAIN * max(self.wanted, 1):
            return "workers end before they serve: the log says why"
        return None if self.alive else "no worker sends heartbeats"

    def problem(self) -> str | None:
        """The file that a worker can't write, with the reason; None if all can."""
        return next((state.problem for state in self.alive.values() if state.problem), None)

    def hanging(self) -> str | None:
        """The reason why live workers can't answer for the script; None if they can."""
        alive = self.alive
        hanging = [self._heard[pid] for pid, state in alive.items() if state.hangs]
        helps = self._hang_in_a_row < self.wanted + MORE_THAN_WORKERS
        if not hanging:
            return None if helps else "the script hangs in every worker, new ones included"
        line = hanging[-1].state.line
        if not helps:
            return f"the script hangs in every worker, new ones included, at {line}"
        if len(hanging) < len(alive):
            return None
        if all(heard.state.full for heard in hanging):
            return f"the script hangs in every thread of every worker, at {line}"
        if self._clock() - max(heard.hangs_since or 0.0 for heard in hanging) > self._replaced_seconds:
            loads = "".join(f": it loads the script, {line}" for line in self.loading_lines()[-1:])
            return f"the script hangs at {line}, and no new worker comes up{loads}"
        return None

    def _in_phase(self, phase: WorkerPhase) -> dict[int, WorkerState]:
        heard = self._heard_within(self._silence_seconds)
        return {pid: each.state for pid, each in heard.items() if each.state.phase is phase}

    def _heard_within(self, seconds: float) -> dict[int, _Heard]:
        earliest = self._clock() - seconds
        return {pid: heard for pid, heard in self._heard.items() if heard.at >= earliest}
