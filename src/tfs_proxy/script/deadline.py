"""The deadline of a script's calls: one watch for each worker looks at what runs a few times a second.

A call that is over its deadline is interrupted if it runs on a coroutine or a greenlet. A thread can't be
interrupted: the watch answers its request, nothing that it writes later counts, and its worker is replaced.
"""

import errno
import logging
import math
import os
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext
from types import FrameType
from typing import Any, Protocol

from tfs_proxy.errors import ScriptTimeout

log = logging.getLogger(__name__)

TICK_SECONDS = 0.25
IDLE_TICK_SECONDS = 1.0
"""While nothing runs: no call that begins meanwhile is over its deadline sooner."""

GRACE_SECONDS = 1.0
"""What a call has to end in once it is interrupted; beyond that it counts as one that hangs."""

NOWHERE = "an unknown line"
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
    """A thread, by default the one that makes the call."""

    def __init__(self, ident: int | None = None) -> None:
        self._ident = ident or threading.get_ident()

    def frames(self) -> tuple[FrameType, ...]:
        """What the thread executes; empty if it has ended."""
        return frames_from(sys._current_frames().get(self._ident))  # noqa: SLF001 - the documented way

    def interrupt(self, unless_over: Callable[[], bool]) -> bool:
        """A thread can't be interrupted."""
        del unless_over
        return False


class CoroutineLane:
    """A coroutine, or async generator, that a thread waits for: on the event loop of the lane ``loop``."""

    def __init__(self, awaitable: Any) -> None:
        self._awaitable = awaitable
        self.finished = False
        self.loop: ThreadLane | None = None
        self.future: Future[Any] | None = None

    def frames(self) -> tuple[FrameType, ...]:
        """Where it waits; one that keeps the loop from everything else is where the loop is."""
        frames, awaitable = [], self._awaitable
        while awaitable is not None:
            # Of an async generator, running says only that its next piece is waited for.
            if getattr(awaitable, "cr_running", False) and self.loop is not None:
                return self.loop.frames()
            frame = _attribute(awaitable, "frame")
            if frame is not None:
                frames.append(frame)
            awaitable = _attribute(awaitable, "await") or getattr(awaitable, "gi_yieldfrom", None)
        return tuple(reversed(frames))

    def interrupt(self, unless_over: Callable[[], bool]) -> bool:
        """Cancel the coroutine; the thread that waits for it goes on at once."""
        if self.future is not None and not unless_over():
            self.future.cancel()
        return True


class ScriptCall:
    """One call of the script: its deadline, what it runs on, and whose request it answers.

    ``connection`` is what the web server gave to `DeadlineWatch.serve`; ``streaming`` says that the head of
    the answer is out, and that only a piece of its body is waited for.
    """

    __slots__ = ("_watch", "connection", "deadline", "expired", "lane", "streaming")

    def __init__(self, watch: "DeadlineWatch", connection: Any, deadline: float, *, streaming: bool) -> None:
        self._watch = watch
        self.connection = connection
        self.streaming = streaming
        self.lane = watch.new_lane()
        self.deadline = deadline
        self.expired = False

    def __enter__(self) -> None:
        self._watch.begin(self)

    def __exit__(self, *_raised: object) -> None:
        self._watch.end(self)


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
        self.hangs = self.answered = False
        self.place = ""
        self._clock = clock
        self._here = _Here()
        self._running: set[ScriptCall] = set()
        self._abandoned: set[ScriptCall] = set()
        self._cancelled: list[tuple[CoroutineLane, float]] = []

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
        if here.call:
            return WITHIN_ANOTHER
        return ScriptCall(self, here.connection, self._clock() + self.seconds, streaming=streaming)

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
        """See to calls that are over their deadline, and to coroutines that go on although cancelled."""
        now, over = self._clock(), Counter[str]()
        for call in [call for call in tuple(self._running) if call.deadline <= now]:
            first_time, place = not call.expired, place_of(call.lane.frames(), self.folder)
            if self._expire(call, now) and first_time:
                over[place] += 1
        for place, count in over.items():
            self.place = place
            calls, hang = ("a call", "it hangs") if count == 1 else (f"{count} calls", "they hang")
            log.error("%s of the script did not end within %g s: %s at %s", calls, self.seconds, hang, place)
        due = [lane for lane, deadline in self._cancelled if deadline <= now and not lane.finished]
        self._cancelled = [(lane, deadline) for lane, deadline in self._cancelled if deadline > now]
        for lane in due:
            self.hangs, self.place = True, place_of(lane.frames(), self.folder)
            log.error("a cancelled coroutine of the script still runs at %s", self.place)

    def _keep_looking(self) -> None:
        while True:
            time.sleep(TICK_SECONDS if self._running or self._cancelled else IDLE_TICK_SECONDS)
            try:
                self.look()
            except Exception:
                log.exception("the deadline watch of the script's calls failed")

    def _expire(self, call: ScriptCall, now: float) -> bool:
        """Interrupt the call or give it up; False if it has just ended."""
        lane = call.lane
        if not call.expired:
            call.expired = True
            if lane.interrupt(lambda: call not in self._running):
                call.deadline = now + GRACE_SECONDS
                if isinstance(lane, CoroutineLane):
                    self._cancelled.append((lane, call.deadline))
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


def frames_from(frame: FrameType | None) -> tuple[FrameType, ...]:
    """``frame`` and its callers, innermost call first."""
    return () if frame is None else tuple(caller for caller, _ in traceback.walk_stack(frame))


def place_of(frames: tuple[FrameType, ...], folder: str) -> str:
    """The innermost line below ``folder``, as ``inference.py:42 in handler``, and the innermost of all.

    ``frames`` begin with the innermost call; ``folder`` is the script's.
    """
    if not frames:
        return NOWHERE
    below = os.path.join(folder, "")  # noqa: PTH118 - a prefix of names, no file access
    own = next((frame for frame in frames if folder and frame.f_code.co_filename.startswith(below)), None)
    innermost = _line(frames[0])
    if own is None:
        return innermost
    location = _line(own).removeprefix(below)
    return location if own is frames[0] else f"{location}, which waits in {innermost}"


def own_part(place: str) -> str:
    """``place`` without what lies outside the script's folder: for clients of ``/ping``."""
    return place.partition(", which waits in ")[0]


def _attribute(awaitable: Any, name: str) -> Any:
    """``cr_``, ``ag_`` or ``gi_`` and ``name`` of a coroutine or generator of any kind; None without."""
    values = (getattr(awaitable, f"{kind}_{name}", None) for kind in ("cr", "ag", "gi"))
    return next((value for value in values if value is not None), None)


def _line(frame: FrameType) -> str:
    return f"{frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_name}"
