"""The threads that gRPC calls run on: few that compute, as many more as there are calls that wait.

Python runs one thread at a time, so tiny calls on many threads spend their time on handing its lock
around. Here only a few take calls; one that is about to wait has another take its place (`aside`), and
if all of them are stuck (in messages that trickle in) helpers take what is queued. A thread that
must not wait at all gets an exception instead (`next_of`).
"""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

_STUCK_SECONDS = 0.005

_Run = Callable[[], None]
_T = TypeVar("_T")

_here = threading.local()


@contextmanager
def aside() -> Iterator[None]:
    """Have another thread take calls for as long as this one waits.

    Does nothing on a thread that is not one of `CallThreads`.
    """
    threads: CallThreads | None = getattr(_here, "threads", None)
    if threads is None:
        yield
        return
    threads.lend_place()
    try:
        yield
    finally:
        threads.take_place_back()


class WouldWait(Exception):
    """A call on a thread that never waits would have to."""


def never_wait_here() -> None:
    """Have no call on this thread wait, for it is an event loop's: see `next_of`."""
    _here.never_waits = True


def next_of(idle: SimpleQueue[_T]) -> _T:
    """Take what is idle, or wait for it. Raises WouldWait on a thread that never waits."""
    try:
        return idle.get_nowait()
    except Empty:
        if getattr(_here, "never_waits", False):
            raise WouldWait from None
        with aside():
            return idle.get()


class CallThreads(Executor):
    """At most ``most`` threads, of which ``places`` take calls at a time, unless they are stuck."""

    def __init__(self, most: int, places: int) -> None:
        self._pool = ThreadPoolExecutor(most, thread_name_prefix="grpc")
        self._queue: SimpleQueue[_Run | None] = SimpleQueue()
        self._arrived = threading.Event()
        self._lock = threading.Lock()
        self._too_many = 0
        self._begun = 0
        self._most = most
        self._helpers = 0
        self._closed = False
        for _ in range(min(places, most)):
            self._pool.submit(self._take_calls)
        threading.Thread(target=self._watch, daemon=True, name="grpc watch").start()

    def submit(self, run: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Run this on one of the threads, in the order of arrival."""
        future: Future[Any] = Future()
        self._queue.put(partial(_finish, future, partial(run, *args, **kwargs)))
        if not self._arrived.is_set():
            self._arrived.set()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take nothing more; what is queued is still run."""
        with self._lock:
            self._closed = True
        self._arrived.set()
        self._queue.put(None)
        self._pool.shutdown(wait, cancel_futures=cancel_futures)

    def lend_place(self) -> None:
        """The calling thread is about to wait: another one takes calls for it."""
        with self._lock:
            if self._too_many:
                self._too_many -= 1
            else:
                self._hire(self._take_calls)

    def take_place_back(self) -> None:
        """The calling thread no longer waits: the next one that is done with its call leaves."""
        with self._lock:
            self._too_many += 1

    def _hire(self, work: Callable[[], None]) -> None:
        if not self._closed:
            self._pool.submit(work)

    def _take_calls(self) -> None:
        _here.threads = self
        while (run := self._queue.get()) is not None:
            self._begun += 1
            run()
            if self._too_many and self._leaves():
                return
        self._queue.put(None)

    def _leaves(self) -> bool:
        with self._lock:
            leaves = self._too_many > 0 and not self._closed
            self._too_many -= leaves
            return leaves

    def _help(self) -> None:
        """Take calls until none is queued."""
        _here.threads = self
        try:
            while (run := self._queue.get_nowait()) is not None:
                self._begun += 1
                run()
            self._queue.put(None)
        except Empty:
            return
        finally:
            with self._lock:
                self._helpers -= 1

    def _watch(self) -> None:
        """Have helpers come whenever calls are queued and none has begun for a while."""
        while not self._closed:
            self._arrived.wait()
            self._arrived.clear()
            begun = self._begun
            time.sleep(_STUCK_SECONDS)
            queued = self._queue.qsize()
            if queued:
                self._arrived.set()
            if queued and begun == self._begun:
                with self._lock:
                    for _ in range(min(queued, self._most - self._helpers)):
                        self._helpers += 1
                        self._hire(self._help)


def _finish(future: Future[Any], run: Callable[[], Any]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = run()
    except BaseException as error:  # noqa: BLE001 (the future has it, as any executor's)
        future.set_exception(error)
    else:
        future.set_result(result)
