"""Adaptive limit of one worker, pure: how many requests run at once, and which one may run now."""

from collections import deque
from enum import Enum

SERVING_SHARE = 0.5
"""Part of the target for answering; the rest is for the wait before it."""

CALM_SHARE = 0.3
"""Part of the target up to which answering is fast enough for a higher limit."""

KEPT_SHARE = 0.8
"""Part of the target in which 99 of 100 answers are to begin: later delays are not measured here."""

LEAST_WAIT_SHARE = 0.1
"""Part of the target that a request may always have waited: slow answers of others leave no place empty."""

SHRINK = 0.75
SLOW_QUANTILE = 0.9
SLOWEST_PART = 40
"""Part of the answers whose mean replaces the 99th percentile, which is unsteady for a few hundred times.

If times fall off exponentially, it is the percentile 1 - 1
(40 * e).
"""

FEWEST_TIMES = 10
REMEMBERED_TIMES = 256


class AdaptiveLimit:
    """Limit of one worker, at least 1, for a target in seconds; not thread-safe."""

    def __init__(self, target_seconds: float) -> None:
        self.target_seconds = target_seconds
        self._limit = 1.0
        self._has_shrunk = False
        self._was_reached = False
        self._round: list[float] = []
        self._remembered: deque[float] = deque(maxlen=REMEMBERED_TIMES)
        self.usual_seconds = 0.0
        self.slowest_seconds = 0.0

    @property
    def most(self) -> int:
        return int(self._limit)

    def latest_start(self, arrived: float) -> float:
        """Latest time at which a request that arrived then can begin and still end within the target."""
        wait_seconds = KEPT_SHARE * self.target_seconds - self.slowest_seconds
        return arrived + max(wait_seconds, LEAST_WAIT_SHARE * self.target_seconds)

    def note(self, seconds: float, under_way: int) -> None:
        """Learn from an answer's duration, with the number of requests in flight, itself included."""
        self._was_reached = self._was_reached or under_way >= self.most
        self._round.append(seconds)
        self._remembered.append(seconds)
        if len(self._remembered) < FEWEST_TIMES:
            self._estimate()
        if len(self._round) >= max(FEWEST_TIMES, 2 * self.most):
            self._adapt()

    def _adapt(self) -> None:
        """End a round: change the limit by the slow answers in it."""
        slow = _quantile(sorted(self._round), SLOW_QUANTILE)
        if slow > SERVING_SHARE * self.target_seconds:
            self._limit = max(1.0, self._limit * SHRINK)
            self._has_shrunk = True
        elif slow < CALM_SHARE * self.target_seconds and self._was_reached:
            # The limit doubles until it has been too high once.
            self._limit = self._limit + 1.0 if self._has_shrunk else self._limit * 2.0
        self._round.clear()
        self._was_reached = False
        self._estimate()

    def _estimate(self) -> None:
        times = sorted(self._remembered)
        self.usual_seconds = sum(times) / len(times)
        slowest = times[-max(1, len(times) // SLOWEST_PART) :]
        # Capped at the target, so that one long pause does not count for all answers.
        self.slowest_seconds = sum(min(seconds, self.target_seconds) for seconds in slowest) / len(slowest)


def _quantile(ascending: list[float], share: float) -> float:
    return ascending[min(int(share * len(ascending)), len(ascending) - 1)]


ALONE_SLACK_SECONDS = 0.005
"""Tolerance of arrival times: clocks of sockets count in ticks."""


class TurnState(Enum):
    """States of a request."""

    WAITS = "waits"
    RUNS = "runs"
    REFUSED = "refused"


class Turn:
    """Request's arrival, its latest start, and its actual start, by one clock."""

    __slots__ = ("alone", "arrived", "began", "latest_start", "state")

    def __init__(self, arrived: float, latest_start: float) -> None:
        self.arrived = arrived
        self.latest_start = latest_start
        self.began = 0.0
        self.alone = False
        self.state = TurnState.WAITS


class AdmissionQueue:
    """Requests in flight in one worker, and those that wait; not thread-safe.

    A request that meets no other is never refused, whatever its age, and however slow answers are.
    """

    def __init__(self, limit: AdaptiveLimit) -> None:
        self.limit = limit
        self.under_way = 0
        self._waiting: deque[Turn] = deque()
        self._last_end = self._last_change = float("-inf")

    def enter(self, arrived: float, now: float) -> Turn:
        """Admit a request: it runs, waits, or is refused since it could not end within the target."""
        turn = Turn(arrived, self.limit.latest_start(arrived))
        if not self.under_way and arrived >= self._last_end - ALONE_SLACK_SECONDS:
            turn.alone = True
            self._begin(turn, now)
        elif self.under_way < self.limit.most and not self._waiting:
            self._begin_in_time(turn, now)
        elif now + self._wait_seconds(now) > turn.latest_start:
            turn.state = TurnState.REFUSED
        else:
            self._waiting.append(turn)
        return turn

    def leave(self, turn: Turn, now: float, *, learn: bool = True) -> list[Turn]:
        """End a request that ran; returns waiting ones that now run, or are refused since it is too late.

        Without ``learn`` its time says nothing about answers.
        """
        self._last_end = self._last_change = now
        if learn:
            self.limit.note(now - turn.began, self.under_way)
        self.under_way -= 1
        decided = []
        while self._waiting and self.under_way < self.limit.most:
            next_turn = self._waiting.popleft()
            self._begin_in_time(next_turn, now)
            decided.append(next_turn)
        return decided

    def give_up(self, turn: Turn) -> None:
        """Refuse a request that waits; ignore one that does not."""
        if turn.state is TurnState.WAITS:
            self._waiting.remove(turn)
            turn.state = TurnState.REFUSED

    def _wait_seconds(self, now: float) -> float:
        """Seconds until one more request could begin, if places become free at a steady pace."""
        pace_seconds = self.limit.usual_seconds / self.limit.most
        return (len(self._waiting) + 1) * pace_seconds - min(now - self._last_change, pace_seconds)

    def _begin_in_time(self, turn: Turn, now: float) -> None:
        if now > turn.latest_start:
            turn.state = TurnState.REFUSED
        else:
            self._begin(turn, now)

    def _begin(self, turn: Turn, now: float) -> None:
        turn.state = TurnState.RUNS
        turn.began = self._last_change = now
        self.under_way += 1
