"""The state of each worker, as workers POST it to the control API: the one watch over them.

`Readiness` asks it for ``/ping``, `StackChildren` for workers that are silent. A worker with calls of the
script that hang is told to leave once others serve in its place. The container is unhealthy if fewer workers
serve than did, if every worker is full of hanging calls, if no new one comes up, or if new ones hang as well.
"""

import asyncio
import logging
import signal
import time
from collections.abc import Callable, Mapping

from msgspec import Struct, field

from tfs_proxy.observe.stage_counts import StageCounts
from tfs_proxy.values.deployment import BootFailure, WorkerPhase, WorkerState

log = logging.getLogger(__name__)

SILENCE_SECONDS = 10.0
"""A worker that has been silent for so long is missing."""

LOOK_SECONDS = 0.01
OVERDUE_PAUSE_SECONDS, STOPPED_SECONDS = 1.0, 5.0
"""Time between two looks for silent workers; after so much more this process was stopped itself."""

STARTS_IN_VAIN = 3
"""Number of times that each worker may start to load without any worker serving."""

MORE_THAN_WORKERS = 2
"""This many more workers than configured must hang in a row, with no answer in between."""


HEALTH_SECONDS = 10.0
"""Interval in which one worker, the first that reports, is to ask its script for its health."""

UNHEALTHY_FAILURES = 2
"""So many times in a row the script has to say that it can't serve."""


class WorkerCounts(Struct):
    """Counts over all stacks of a run: workers that have begun to load the application, captured calls.

    ``stages`` are those of the requests, with which the run measures them.
    """

    starts: int = 0
    captured: int = 0
    uncaptured: int = 0
    stages: StageCounts = field(default_factory=StageCounts)


class _Heard(Struct):
    """A worker's last state with its time, the time since which calls hang in it, and what it was told."""

    state: WorkerState
    at: float
    hangs_since: float | None = None
    leaves: bool = False
    aborted: bool = False


class Heartbeats:
    """The last state of each worker.

    ``wanted`` is how many workers there should be, ``replaced_seconds`` how long it may take to replace one,
    ``timeout_seconds`` the silence after which one is ended. ``booted`` is set once a worker serves.
    ``starts`` is how many have begun to load the application, ``counts`` has those of former stacks, too;
    ``failure`` is why the latest one can't load it. ``model`` is its name; ``unhealthy`` is why the
    script can't serve, None if it has told nothing.
    """

    def __init__(
        self,
        wanted: int = 1,
        replaced_seconds: float = 300.0,
        timeout_seconds: float = 70.0,
        counts: WorkerCounts | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.wanted = wanted
        self.booted = asyncio.Event()
        self.failure: BootFailure | None = None
        self.starts = 0
        self.counts = WorkerCounts() if counts is None else counts
        self._replaced_seconds = replaced_seconds
        self._timeout_seconds = max(timeout_seconds, SILENCE_SECONDS)
        self._clock = clock
        self._looked = clock()
        self._heard: dict[int, _Heard] = {}
        self._most_alive = 0
        self._starts_in_vain = 0
        self._hang_in_a_row = 0
        self.model = ""
        self.unhealthy: str | None = None
        self._health_failures, self._health_due = 0, 0.0

    def hear(self, state: WorkerState) -> None:
        now = self._clock()
        heard = self._heard.get(state.pid)
        if heard is None or state.phase is WorkerPhase.BEGINS:  # another may have had its pid
            heard = self._heard[state.pid] = _Heard(WorkerState(state.pid, state.phase), now)
        before, heard.state, heard.at = heard.state, state, now
        self.counts.captured += max(state.captured - before.captured, 0)
        self.counts.uncaptured += max(state.uncaptured - before.uncaptured, 0)
        self.counts.stages.add(state.stages)
        if state.health is not None:
            self._hear_health(state.health)
        if state.answered:
            self._hang_in_a_row = 0
        if state.hangs and heard.hangs_since is None:
            heard.hangs_since = now
            self._hang_in_a_row += 1
        if state.phase is WorkerPhase.BEGINS:
            self.starts += 1
            self.counts.starts += 1
            self._starts_in_vain += 1
        elif state.phase is WorkerPhase.SERVES:
            self._starts_in_vain = 0
            self._most_alive = max(self._most_alive, min(len(self.alive), self.wanted))
            self.booted.set()
        elif state.failure is not None:
            self.failure = state.failure

    def _hear_health(self, fault: str) -> None:
        self._health_failures = self._health_failures + 1 if fault else 0
        before, self.unhealthy = self.unhealthy, fault if self._health_failures >= UNHEALTHY_FAILURES else ""
        if self.unhealthy and not before:
            log.error("model %s is not healthy: %s", self.model, fault)
        elif before and not self.unhealthy:
            log.info("model %s is healthy again", self.model)

    def asks_health(self) -> bool:
        """True if the worker that reports now is to ask its script."""
        now = self._clock()
        if is_due := now >= self._health_due:
            self._health_due = now + HEALTH_SECONDS
        return is_due

    def may_leave(self, pid: int) -> bool:
        """True, from then on, if calls hang in a worker and enough others serve."""
        heard = self._heard.get(pid)
        if heard is None or not heard.state.hangs:
            return False
        if not heard.leaves:
            heard.leaves = sum(not self._heard[each].leaves for each in self.alive) > self.wanted
        return heard.leaves

    def overdue(self) -> Mapping[int, signal.Signals]:
        """Signals by pid for silent workers, SIGABRT before SIGKILL; none if asked again within a second."""
        now = self._clock()
        pause = now - self._looked
        if pause < OVERDUE_PAUSE_SECONDS:
            return {}
        self._looked = now
        signals = {}
        for pid, heard in self._heard.items():
            if pause > OVERDUE_PAUSE_SECONDS + STOPPED_SECONDS:
                heard.at += pause
            elif now - heard.at > self._timeout_seconds:
                signals[pid] = signal.SIGKILL if heard.aborted else signal.SIGABRT
                heard.aborted = True
        return signals

    def drop(self, pid: int) -> None:
        """Forgets a worker that has ended."""
        del self._heard[pid]

    def expect(self, workers: int, model: str) -> None:
        """Sets how many workers there should be, and for which model."""
        self.wanted, self.model = workers, model

    async def until_alive(self, *, every_worker: bool) -> None:
        """Returns once a worker serves, or as many as there should be."""
        await self.booted.wait()
        while len(self.alive) < (self.wanted if every_worker else 1):  # noqa: ASYNC110 - workers come and go
            await asyncio.sleep(LOOK_SECONDS)

    def forget(self) -> None:
        """Drops all states: their workers are gone."""
        self._heard.clear()
        self._most_alive = 0
        self.booted.clear()

    @property
    def alive(self) -> Mapping[int, WorkerState]:
        """The states of workers that serve and are not missing, by pid."""
        earliest = self._clock() - SILENCE_SECONDS
        return {
            pid: heard.state
            for pid, heard in self._heard.items()
            if heard.at >= earliest and heard.state.phase is WorkerPhase.SERVES
        }

    def loading_lines(self) -> list[str]:
        """Lines of the script at which loading workers are."""
        states = (heard.state for heard in self._heard.values())
        return [state.line for state in states if state.phase is WorkerPhase.LOADS and state.line]

    def reason(self) -> str | None:
        """The reason why a worker does not serve, as a phrase; None if all do, or are about to.

        A killed worker counts as long as it is not missing: another one takes its place.
        """
        alive = self.alive
        if self._starts_in_vain > STARTS_IN_VAIN * max(self.wanted, 1):
            return "workers end before they serve: the log says why"
        if not alive:
            return "no worker sends heartbeats"
        if len(alive) < self._most_alive:
            return f"{len(alive)} of {self.wanted} workers send heartbeats"
        problem = next((state.problem for state in alive.values() if state.problem), None)
        return problem or self._hanging(alive)

    def _hanging(self, alive: Mapping[int, WorkerState]) -> str | None:
        """The reason why live workers can't answer for the script; None if they can."""
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
