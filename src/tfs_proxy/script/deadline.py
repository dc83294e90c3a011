"""The deadline of a script's calls: one watch for each worker, which looks at what runs a few times a second.

A thread cannot be killed. So a call that is over its deadline is interrupted if whatever it runs on can be
(a coroutine, a greenlet), and abandoned otherwise: the watch answers its request, its thread
writes nothing any more should it ever return, and the worker asks to be replaced.
"""

import errno
import logging
import math
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext
from types import FrameType
from typing import Any, Protocol

from tfs_proxy.errors import ScriptTimeout
from tfs_proxy.script.tracebacks_of_threads import frames_of_coroutine, frames_of_thread, place_of

log = logging.getLogger(__name__)

TICK_SECONDS = 0.25
IDLE_TICK_SECONDS = 1.0
"""While nothing runs: no call that begins meanwhile is over its deadline sooner."""

GRACE_SECONDS = 1.0
"""What a call has to end in once it is interrupted; beyond that it counts as one that hangs."""

TIMEOUTS_IN_A_ROW = 8
"""A worker that has interrupted so many calls, and completed none in between, asks to be replaced too."""


WITHIN_ANOTHER = nullcontext()


class Abandoned(ConnectionResetError):
    """The request has been answered without this call, which must not write anything any more."""

    def __init__(self) -> None:
        super().__init__(errno.ECONNRESET, "the call came back after its deadline")


class Lane(Protocol):
    """What a call runs on."""

    def frames(self) -> tuple[FrameType, ...]:
        """What it executes at this moment, innermost call first."""

    def interrupt(self, unless_over: Callable[[], bool]) -> bool:
        """End what it executes, if that can be done at all; nothing happens once ``unless_over`` is true."""


class ThreadLane:
    """The thread that makes it."""

    __slots__ = ("_ident",)

    def __init__(self) -> None:
        self._ident = threading.get_ident()

    def frames(self) -> tuple[FrameType, ...]:
        """What the thread executes."""
        return frames_of_thread(self._ident)

    def interrupt(self, unless_over: Callable[[], bool]) -> bool:
        """A thread can't be interrupted."""
        del unless_over
        return False


class Awaited:
    """A coroutine that a call waits for: its future, what is awaited, and whether it has come to its end."""

    __slots__ = ("awaitable", "finished", "future", "loop_thread")

    def __init__(self, awaitable: Any) -> None:
        self.awaitable = awaitable
        self.finished = False
        self.future: Future[Any] | None = None
        self.loop_thread: threading.Thread | None = None

    def frames(self) -> tuple[FrameType, ...]:
        """Where the coroutine waits."""
        return frames_of_coroutine(self.awaitable, self.loop_thread)

    def cancel(self) -> None:
        """Cancel the coroutine; the thread that waits for it goes on at once."""
        if self.future is not None:
            self.future.cancel()


class ScriptCall:
    """One call of the script: its deadline, what it runs on, and whose request it answers.

    ``connection`` is what the web server gave to `DeadlineWatch.serve`; ``streaming`` says that the head of
    the answer is out, and that only a piece of its body is waited for.
    """

    __slots__ = ("_watch", "awaited", "connection", "deadline", "expired", "lane", "streaming")

    def __init__(self, watch: "DeadlineWatch", connection: Any, *, streaming: bool) -> None:
        self._watch = watch
        self.connection = connection
        self.streaming = streaming
        self.lane = watch.new_lane()
        self.deadline = watch.new_deadline()
        self.awaited: Awaited | None = None
        self.expired = False

    # PERF: a class, since a generator as context manager would cost a request twice as much.
    def __enter__(self) -> None:
        self._watch.begin(self)

    def __exit__(self, *_raised: object) -> None:
        self._watch.end(self)

    def frames(self) -> tuple[FrameType, ...]:
        """Where the call is."""
        awaited = self.awaited
        return self.lane.frames() if awaited is None else awaited.frames()


class _Here(threading.local):
    """What one thread, or one greenlet, is at."""

    call: ScriptCall | None = None
    connection: Any = None


class DeadlineWatch:
    """Holds every call of the script to ``seconds``; one per worker, used by all its threads.

    ``folder`` is the script's. ``abandon`` gets each call that is given up, and answers its request;
    ``new_lane`` tells what the current call runs on. ``hangs`` says that the worker should be replaced,
    ``place`` where a call hung last, ``answered`` that a call was completed since it was last set to False.
    """

    def __init__(
        self, seconds: float = math.inf, folder: str = "", clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.seconds = seconds
        self.folder = folder
        self.abandon: Callable[[ScriptCall], None] = lambda _call: None
        self.new_lane: Callable[[], Lane] = ThreadLane
        self.hangs = False
        self.answered = False
        self.place = ""
        self._clock = clock
        self._here = _Here()
        self._running: set[ScriptCall] = set()
        self._abandoned: set[ScriptCall] = set()
        self._cancelled: list[tuple[Awaited, float]] = []
        self._timeouts_in_a_row = 0

    @property
    def hanging(self) -> int:
        """How many abandoned calls have not come back."""
        return len(self._abandoned)

    def serve(self, connection: Any) -> None:
        """From here on this thread's calls answer a request on ``connection``."""
        self._here.connection = connection

    @property
    def connection(self) -> Any:
        """What `serve` set for this thread last."""
        return self._here.connection

    def call(self, *, streaming: bool = False) -> AbstractContextManager[None]:
        """Hold what is done in the block to the deadline; within another such block this one does nothing.

        Raises ScriptTimeout if it was interrupted, and Abandoned if its request has been answered by now.
        """
        here = self._here
        return WITHIN_ANOTHER if here.call else ScriptCall(self, here.connection, streaming=streaming)

    def new_deadline(self) -> float:
        """The deadline of a call that begins now."""
        return self._clock() + self.seconds

    def begin(self, call: ScriptCall) -> None:
        """From here on ``call`` is looked at."""
        self._here.call = call
        self._running.add(call)

    def end(self, call: ScriptCall) -> None:
        """``call`` is over; raises as `call` says."""
        self._here.call = None
        try:
            # The thread that takes the call out of the set, this one or the watch's, answers the request.
            self._running.remove(call)
        except KeyError:
            self._abandoned.discard(call)
            raise Abandoned from None
        if call.expired:
            raise self.timeout() from None
        self.answered = True
        self._timeouts_in_a_row = 0

    def current(self) -> ScriptCall | None:
        """The call that this thread is at."""
        return self._here.call

    def interrupted(self) -> bool:
        """Whether this thread's call is over its deadline: then what it raises is of no interest."""
        call = self._here.call
        return call is not None and call.expired

    def timeout(self) -> ScriptTimeout:
        """The error that the client gets."""
        return ScriptTimeout(
            f"The script did not answer within {self.seconds:g} seconds (TFS_PROXY_SCRIPT_TIMEOUT_SECONDS); "
            "the server's log says where it hangs."
        )

    def start(self) -> None:
        """Look at what runs, from a thread of its own, as long as the process lives."""
        if self.seconds < math.inf:
            threading.Thread(target=self._keep_looking, name="script-watch", daemon=True).start()

    def look(self) -> None:
        """See to every call that is over its deadline, once."""
        now = self._clock()
        over: Counter[str] = Counter()
        for call in tuple(self._running):
            if call.deadline <= now:
                first_time, place = not call.expired, place_of(call.frames(), self.folder)
                if self._expire(call, now) and first_time:
                    over[place] += 1
        for place, count in over.items():
            self._report(place, count)
        self._look_at_cancelled(now)

    def _keep_looking(self) -> None:
        while True:
            time.sleep(TICK_SECONDS if self._running or self._cancelled else IDLE_TICK_SECONDS)
            try:
                self.look()
            except Exception:
                log.exception("the deadline watch of the script's calls failed")

    def _expire(self, call: ScriptCall, now: float) -> bool:
        """Interrupt the call or give it up; False if it has just ended."""
        if not call.expired:
            call.expired = True
            if self._interrupt(call, now):
                call.deadline = now + GRACE_SECONDS
                self._count_timeout()
                return True
        self._abandoned.add(call)
        try:
            self._running.remove(call)
        except KeyError:
            self._abandoned.discard(call)
            return False
        self.hangs = True
        self.abandon(call)
        return True

    def _count_timeout(self) -> None:
        self._timeouts_in_a_row += 1
        if self._timeouts_in_a_row == TIMEOUTS_IN_A_ROW:
            self.hangs = True
            log.error(
                "%d calls in a row had to be interrupted: the worker asks to be replaced", TIMEOUTS_IN_A_ROW
            )

    def _interrupt(self, call: ScriptCall, now: float) -> bool:
        awaited = call.awaited
        if awaited is None:
            return call.lane.interrupt(lambda: call not in self._running)
        self._cancelled.append((awaited, now + GRACE_SECONDS))
        awaited.cancel()
        return True

    def _look_at_cancelled(self, now: float) -> None:
        """A coroutine that goes on after it was cancelled, or blocks the event loop, can't be ended."""
        due = [awaited for awaited, deadline in self._cancelled if deadline <= now]
        self._cancelled = [(awaited, deadline) for awaited, deadline in self._cancelled if deadline > now]
        for awaited in due:
            if not awaited.finished:
                self.hangs = True
                self.place = place_of(awaited.frames(), self.folder)
                log.error("a cancelled coroutine of the script still runs at %s", self.place)

    def _report(self, place: str, count: int) -> None:
        self.place = place
        calls, hang = ("a call", "it hangs") if count == 1 else (f"{count} calls", "they hang")
        log.error("%s of the script did not end within %g s: %s at %s", calls, self.seconds, hang, place)
