"""The adaptive limit in virtual time: simulated service times, arrivals on a schedule."""

import heapq
import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass, field

from tfs_proxy.worker.gunicorn_workers.adaptive_limit import AdaptiveLimit, AdmissionQueue, Turn, TurnState

TARGET = 0.05
Service = Callable[[float, int, random.Random], float]
"""Seconds of an answer that begins at a time, with so many in flight."""


@dataclass
class Outcome:
    answers: list[tuple[float, float]] = field(default_factory=list)
    turns: list[Turn] = field(default_factory=list)
    limits: list[tuple[float, int]] = field(default_factory=list)

    def p99(self, since: float = 2.0) -> float:
        """Seconds, of the answers after this time."""
        seconds = sorted(taken for at, taken in self.answers if at > since)
        return seconds[int(0.99 * len(seconds))]

    def limits_between(self, begin: float, end: float) -> list[int]:
        return [limit for at, limit in self.limits if begin < at < end]

    @property
    def refused(self) -> int:
        return sum(turn.state is TurnState.REFUSED for turn in self.turns)


def simulate(rate: float, service: Service, seconds: float = 20.0) -> Outcome:
    """Simulate requests that come at random at this rate a second, regardless of answers."""
    chance = random.Random(1)
    turns, outcome, order = AdmissionQueue(AdaptiveLimit(TARGET)), Outcome(), itertools.count()
    arrivals = itertools.accumulate(chance.expovariate(rate) for _ in range(int(rate * seconds)))
    events: list[tuple[float, int, Turn | None]] = [(at, next(order), None) for at in arrivals]
    while events:
        now, _, ended = heapq.heappop(events)
        if ended is None:
            begun = [turns.enter(now, now)]
            outcome.turns += begun
        else:
            outcome.answers.append((now, now - ended.arrived))
            begun = turns.leave(ended, now)
        for turn in begun:
            if turn.state is TurnState.RUNS:
                ends = now + service(now, turns.under_way, chance)
                heapq.heappush(events, (ends, next(order), turn))
        outcome.limits.append((now, turns.limit.most))
    return outcome


def on_one_core(now: float, under_way: int, chance: random.Random) -> float:
    """2 ms each, and all at once share the core: 500 a second."""
    return 0.002 * under_way * chance.uniform(0.8, 1.3)


def on_eight_servers(now: float, under_way: int, chance: random.Random) -> float:
    """10 ms, for eight at once: 800 a second."""
    return 0.010 * max(1.0, under_way / 8) * chance.uniform(0.8, 1.5)


def test_at_twice_the_load_the_slowest_answers_are_within_the_target() -> None:
    for capacity, service in ((500, on_one_core), (800, on_eight_servers)):
        outcome = simulate(2.0 * capacity, service)
        assert outcome.p99() < TARGET
        assert len(outcome.answers) > 0.8 * 20 * capacity
        assert outcome.refused == len(outcome.turns) - len(outcome.answers)


def test_nothing_is_refused_at_half_the_load() -> None:
    """The limit has grown enough by the time it is needed."""
    for capacity, service in ((500, on_one_core), (800, on_eight_servers)):
        outcome = simulate(0.5 * capacity, service)
        refused = [turn for turn in outcome.turns if turn.state is TurnState.REFUSED and turn.arrived > 2]
        assert len(refused) < 0.01 * len(outcome.turns)


def test_the_limit_converges() -> None:
    limits = simulate(1600, on_eight_servers).limits_between(5, 20)
    assert min(limits) >= 6
    assert max(limits) <= 16


def test_the_limit_shrinks_in_a_slow_spell_and_recovers() -> None:
    """Ten times slower for five seconds: the limit is small then, and recovers afterwards."""

    def with_a_spell(now: float, under_way: int, chance: random.Random) -> float:
        return on_one_core(now, under_way, chance) * (10 if 5 < now < 10 else 1)

    outcome = simulate(1000, with_a_spell)
    assert max(outcome.limits_between(8, 10)) == 1
    assert min(outcome.limits_between(15, 20)) >= max(outcome.limits_between(4, 5)) - 3
    assert outcome.p99(since=11) < TARGET


def test_requests_begin_in_the_order_in_which_they_came() -> None:
    """No later one passes a request that waits, so none starves."""
    ran = [turn for turn in simulate(1000, on_one_core).turns if turn.state is TurnState.RUNS]
    begun = [turn.began for turn in ran]
    assert begun == sorted(begun)


def test_a_request_alone_runs_whatever_its_age() -> None:
    turns = AdmissionQueue(AdaptiveLimit(TARGET))
    assert turns.enter(arrived=0.0, now=60.0).state is TurnState.RUNS


def test_a_request_that_has_waited_behind_another_for_too_long_is_refused() -> None:
    turns = AdmissionQueue(AdaptiveLimit(TARGET))
    turns.leave(turns.enter(arrived=0.0, now=0.0), now=1.0)
    assert turns.enter(arrived=0.5, now=1.0).state is TurnState.REFUSED
    assert turns.enter(arrived=0.99, now=1.0).state is TurnState.REFUSED
    assert turns.enter(arrived=1.0, now=1.0).state is TurnState.RUNS


def test_a_request_waits_for_a_place_that_is_about_to_become_free() -> None:
    """A request that comes just after an answer has begun would wait for too long, and is refused."""
    limit = AdaptiveLimit(TARGET)
    turns = AdmissionQueue(limit)
    for at in range(9):
        turns.leave(turns.enter(at, at), at + 0.022)
    turns.enter(10.0, 10.0)
    assert turns.enter(10.001, 10.001).state is TurnState.REFUSED
    assert turns.enter(10.010, 10.010).state is TurnState.WAITS


def test_a_request_that_gives_up_waiting_lets_the_next_one_run() -> None:
    limit = AdaptiveLimit(TARGET)
    turns = AdmissionQueue(limit)
    first, second, third = (turns.enter(0.0, 0.0) for _ in range(3))
    assert (second.state, third.state) == (TurnState.WAITS, TurnState.WAITS)
    turns.give_up(second)
    assert turns.leave(first, now=0.001) == [third]
    assert (second.state, third.state) == (TurnState.REFUSED, TurnState.RUNS)


def test_a_model_that_is_slower_than_the_target_still_answers() -> None:
    """One at a time, however long it takes: the limit is never below 1."""
    outcome = simulate(20, lambda _now, under_way, _chance: 0.2 * under_way)
    assert len(outcome.answers) > 0.8 * len(outcome.turns) * (1 / 0.25) / 20
    assert min(limit for _, limit in outcome.limits) == 1


def test_every_request_is_decided() -> None:
    """None is left to wait once all others have ended."""
    assert all(turn.state is not TurnState.WAITS for turn in simulate(1000, on_one_core).turns)
