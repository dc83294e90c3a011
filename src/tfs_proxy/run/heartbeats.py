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
OVERDUE_PAUSE_SECONDS = 1.0
STOPPED_SECONDS = 5.0
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
    """A worker's last report, and all that it was told."""

    state: WorkerState
    """State that it has reported last."""

    at: float
    """Time of that report, by the clock of `Heartbeats`."""

    hangs_since: float | None = None
    """Time since which calls hang in it; None if none does."""

    leaves: bool = False
    """True once it was told to leave."""

    aborted: bool = False
    """True once it has got SIGABRT for its silence."""


class Heartbeats:
    """The last state of each worker; times are in seconds of ``clock``."""

    def __init__(
        self,
        wanted: int = 1,
        replaced_seconds: float = 300.0,
        timeout_seconds: float = 70.0,
        counts: WorkerCounts | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.wanted = wanted
        """Number of workers that there should be."""

        self.booted = asyncio.Event()
        """Event that is set once a worker serves."""

        self.failure: BootFailure | None = None
        """Reason why the latest worker that failed can't load the application; None if none has."""

        self.starts = 0
        """Number of workers of this stack that have begun to load the application."""

        self.counts = WorkerCounts() if counts is None else counts
        """Counts over all stacks of the run, former ones among them."""

        self._replaced_seconds = replaced_seconds
        """Time that it may take to replace a worker."""

        self._timeout_seconds = max(timeout_seconds, SILENCE_SECONDS)
        """Silence after which a worker is ended."""

        self._clock = clock
        """Function that gives the time."""

        self._looked = clock()
        """Time of the last look for silent workers."""

        self._heard: dict[int, _Heard] = {}
        """Last report by pid."""

        self._most_alive = 0
        """Highest number of workers that have served at a time, at most the number that should be."""

        self._starts_in_vain = 0
        """Number of loads begun since a worker came to serve last."""

        self._hang_in_a_row = 0
        """Number of workers that came to hang since a call of the script was answered last."""

        self.model = ""
        """Name of the model, for the log."""

        self.unhealthy: str | None = None
        """Reason of the script why it can't serve, "" if it can, None if it has told nothing."""

        self._health_failures = 0
        """Number of times in a row that the script has said that it can't serve."""

        self._health_due = 0.0
        """Time from which a worker is to ask the script for its health."""

    def hear(self, state: WorkerState) -> None:
        now = self._clock()
        heard = self._heard.get(state.pid)
        if heard is None or state.phase is WorkerPhase.BEGINS:  # another may have had its pid
            heard = self._heard[state.pid] = _Heard(WorkerState(state.pid, state.phase), now)
        before = heard.state
        heard.state = state
        heard.at = now
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
        before = self.unhealthy
        self.unhealthy = fault if self._health_failures >= UNHEALTHY_FAILURES else ""
        if self.unhealthy and not before:
            log.error("model %s is not healthy: %s", self.model, fault)
        elif before and not self.unhealthy:
            log.info("model %s is healthy again", self.model)

    def take_health_turn(self) -> bool:
        """Gives the worker that reports now the turn to ask its script, if one is due; True if so."""
        now = self._clock()
        if is_due := now >= self._health_due:
            self._health_due = now + HEALTH_SECONDS
        return is_due

    def let_leave(self, pid: int) -> bool:
        """Lets a worker leave in which calls hang, if enough others serve; True if so, and from then on."""
        heard = self._heard.get(pid)
        if heard is None or not heard.state.hangs:
            return False
        if not heard.leaves:
            heard.leaves = sum(not self._heard[each].leaves for each in self.alive) > self.wanted
        return heard.leaves

    def take_overdue(self) -> Mapping[int, signal.Signals]:
        """Takes the signals due to silent workers, by pid: SIGABRT, then SIGKILL; none within a second."""
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

    def set_wanted(self, workers: int, model: str) -> None:
        """Sets how many workers there should be, and for which model."""
        self.wanted = workers
        self.model = model

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
