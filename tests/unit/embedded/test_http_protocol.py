"""The idle time of a connection: one timer, moved from answer to answer."""

import asyncio
from collections.abc import Callable

import pytest

from tfs_proxy.embedded.rest.http_protocol import IdleClock


class Loop:
    """An event loop's clock and timers, turned by hand."""

    def __init__(self) -> None:
        self.now = 100.0
        self.made = 0
        self._timers: list[tuple[float, Callable[[], object]]] = []
        self.create_task = asyncio.ensure_future

    def time(self) -> float:
        return self.now

    def call_later(self, delay: float, callback: Callable[[], object]) -> "Timer":
        self.made += 1
        entry = (self.now + delay, callback)
        self._timers.append(entry)
        return Timer(lambda: self._timers.remove(entry))

    def turn(self, seconds: float) -> None:
        self.now += seconds
        due = [entry for entry in self._timers if entry[0] <= self.now]
        for entry in due:
            self._timers.remove(entry)
            entry[1]()

    @property
    def waiting(self) -> int:
        return len(self._timers)


class Timer:
    """What `Loop.call_later` gives."""

    def __init__(self, cancel: Callable[[], None]) -> None:
        self.cancel = cancel


@pytest.fixture
def loop() -> Loop:
    """A loop whose time stands still."""
    return Loop()


@pytest.fixture
def clock(loop: Loop) -> IdleClock:
    """A connection's clock on it."""
    return IdleClock(loop)  # type: ignore[arg-type]


def test_a_silent_connection_is_called_after_its_idle_time(loop: Loop, clock: IdleClock) -> None:
    """It rings once, at the time that was asked for."""
    rings: list[float] = []
    clock.call_later(10, lambda: rings.append(loop.now))
    loop.turn(9.5)
    assert rings == []
    loop.turn(0.5)
    loop.turn(100)
    assert rings == [110.0]


def test_each_answer_moves_the_time_without_a_new_timer(loop: Loop, clock: IdleClock) -> None:
    """Requests and answers in between count from the last answer, on one timer."""
    rings: list[float] = []
    for _ in range(5):
        handle = clock.call_later(10, lambda: rings.append(loop.now))
        loop.turn(1)
        handle.cancel()
    assert loop.made == 1
    clock.call_later(10, lambda: rings.append(loop.now))
    loop.turn(5)
    assert rings == []
    loop.turn(5)
    assert rings == [115.0]


def test_a_request_under_way_is_never_idle(loop: Loop, clock: IdleClock) -> None:
    """What was cancelled does not ring, however long the answer takes; the next answer counts anew."""
    rings: list[float] = []
    clock.call_later(10, lambda: rings.append(loop.now)).cancel()
    loop.turn(50)
    assert rings == []
    clock.call_later(10, lambda: rings.append(loop.now))
    loop.turn(10)
    assert rings == [160.0]


def test_a_closed_connection_leaves_no_timer_behind(loop: Loop, clock: IdleClock) -> None:
    """The loop would hold the connection for the rest of its idle time."""
    clock.call_later(600, lambda: None)
    clock.stop()
    assert loop.waiting == 0
