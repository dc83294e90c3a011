"""Which request may run now: first come, first served, up to the limit; pure, for `admission.gate`."""

from collections import deque
from enum import Enum

from tfs_proxy.web.workers.admission.limit import AdaptiveLimit

ALONE_SLACK_SECONDS = 0.005
"""How much earlier than it came a request may seem to have arrived: clocks of sockets count in ticks."""


class TurnState(Enum):
    """What has become of a request."""

    WAITS = "waits"
    RUNS = "runs"
    REFUSED = "refused"


class Turn:
    """One request: when it arrived, until when it must begin, and since when it runs, by one clock."""

    __slots__ = ("alone", "arrived", "began", "latest_start", "state")

    def __init__(self, arrived: float, latest_start: float) -> None:
        self.arrived = arrived
        self.latest_start = latest_start
        self.began = 0.0
        self.alone = False
        self.state = TurnState.WAITS


class AdmissionQueue:
    """The requests under way in one worker, and those that wait; not safe for several threads.

    A request that meets no other is never refused, whatever its age, and however slow answers are.
    """

    def __init__(self, limit: AdaptiveLimit) -> None:
        self.limit = limit
        self.under_way = 0
        self._waiting: deque[Turn] = deque()
        self._last_end = self._last_change = float("-inf")

    def enter(self, arrived: float, now: float) -> Turn:
        """Take a request in: it runs, waits, or is refused since it could not end within the target."""
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
        """End a request that ran; those that waited and now run, or are refused since it is too late.

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
        """Refuse a request that waits; nothing happens to one that does not."""
        if turn.state is TurnState.WAITS:
            self._waiting.remove(turn)
            turn.state = TurnState.REFUSED

    def _wait_seconds(self, now: float) -> float:
        """Until one more request could begin, if places become free at a steady pace."""
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
