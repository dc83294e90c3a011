"""The threads of gRPC calls: few at a time that compute, others while calls wait."""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import partial
from typing import Any

import pytest

from tfs_proxy.embedded.core import call_threads
from tfs_proxy.embedded.core.call_threads import CallThreads, aside

MOST = 16
LONG = 20.0


def a_moment() -> None:
    """What a call takes here."""
    time.sleep(0.001)


class Crowd:
    """A call that counts how many of it run at the same time; ``stay`` is what they do meanwhile."""

    def __init__(self, stay: Callable[[], object] = a_moment) -> None:
        self._stay = stay
        self._lock = threading.Lock()
        self._now = 0
        self.most = 0

    def __call__(self) -> None:
        with self._lock:
            self._now += 1
            self.most = max(self.most, self._now)
        self._stay()
        with self._lock:
            self._now -= 1


@pytest.fixture
def two_places() -> Iterator[CallThreads]:
    """Threads of which two take calls."""
    threads = CallThreads(MOST, places=2)
    yield threads
    threads.shutdown()


def waiting_for(event: threading.Event) -> Callable[[], bool]:
    """A call that waits, and says so."""

    def call() -> bool:
        with aside():
            return event.wait(LONG)

    return call


def test_only_so_many_calls_as_there_are_places_run_at_a_time(
    monkeypatch: pytest.MonkeyPatch, two_places: CallThreads
) -> None:
    """Twenty calls that compute run two by two."""
    monkeypatch.setattr(call_threads, "_STUCK_SECONDS", LONG)
    crowd = Crowd(partial(threading.Barrier(2).wait, LONG))
    for each in [two_places.submit(crowd) for _ in range(20)]:
        each.result()
    assert crowd.most == 2


def test_calls_that_wait_lend_their_places(two_places: CallThreads) -> None:
    """As many calls as there are threads, less one for the others, may wait at the same time."""
    meeting = threading.Barrier(MOST - 2)

    def call() -> int:
        with aside():
            return meeting.wait(LONG)

    met = [two_places.submit(call) for _ in range(MOST - 2)]
    assert sorted(call.result(LONG) for call in met) == list(range(MOST - 2))


def test_places_that_were_lent_are_taken_back(
    monkeypatch: pytest.MonkeyPatch, two_places: CallThreads
) -> None:
    """After calls have waited, there are no more at a time than before."""
    monkeypatch.setattr(call_threads, "_STUCK_SECONDS", LONG)  # from the start: helpers would come at a pause
    event = threading.Event()
    waited = [two_places.submit(waiting_for(event)) for _ in range(8)]
    assert two_places.submit(lambda: "between").result(LONG) == "between"
    event.set()
    wait(waited)
    wait([two_places.submit(lambda: None) for _ in range(50)])
    crowd = Crowd()
    wait([two_places.submit(crowd) for _ in range(50)])
    assert crowd.most <= 2


def test_calls_that_are_stuck_without_a_word_do_not_hold_up_others(two_places: CallThreads) -> None:
    """Where every place is taken by a call that does not go on, the next ones run all the same."""
    event = threading.Event()
    stuck = [two_places.submit(event.wait, LONG) for _ in range(4)]
    assert [two_places.submit(lambda at=at: at).result(LONG) for at in range(3)] == [0, 1, 2]
    event.set()
    assert all(call.result(LONG) for call in stuck)


class Rounds:
    """A clock that tells when the watch over stuck calls has slept a hundred times."""

    def __init__(self) -> None:
        self.slept = 0
        self.many = threading.Event()

    def sleep(self, _seconds: float) -> None:
        time.sleep(0.0001)
        self.slept += 1
        if self.slept == 100:
            self.many.set()


class Counted(ThreadPoolExecutor):
    """A pool that counts what it is given."""

    given = 0

    def submit(self, *args: Any, **kwargs: Any) -> Future[Any]:
        self.given += 1
        return super().submit(*args, **kwargs)


def test_helpers_do_not_pile_up_where_every_thread_is_stuck(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are called again and again while calls are queued, but no more of them than there are threads."""
    rounds, pools = Rounds(), []

    def pool(*args: Any, **kwargs: Any) -> Counted:
        pools.append(Counted(*args, **kwargs))
        return pools[-1]

    monkeypatch.setattr(call_threads, "ThreadPoolExecutor", pool)
    monkeypatch.setattr(call_threads, "time", rounds)
    threads = CallThreads(4, places=2)
    event = threading.Event()
    stuck = [threads.submit(event.wait, LONG) for _ in range(10)]
    assert rounds.many.wait(LONG)
    given = pools[0].given  # now: once calls go on, others may need help
    event.set()
    assert all(call.result(LONG) for call in stuck)
    threads.shutdown()
    assert given <= 2 + 4


def test_what_a_call_raises_is_its_future_s(two_places: CallThreads) -> None:
    """An exception does not take the thread along."""

    def fails() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        two_places.submit(fails).result(LONG)
    assert two_places.submit(len, "abc").result(LONG) == 3


def test_shutting_down_runs_what_is_queued() -> None:
    """Calls that were taken in are answered before the threads end."""
    threads = CallThreads(MOST, places=1)
    futures = [threads.submit(time.sleep, 0.001) for _ in range(20)]
    threads.shutdown(wait=True)
    assert all(call.done() for call in futures)


def test_waiting_on_any_other_thread_changes_nothing() -> None:
    """`aside` is for every caller of a model: most are on no such thread."""
    with aside():
        assert threading.current_thread() is threading.main_thread()
