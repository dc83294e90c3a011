"""Deadline of a script's calls: one watch for each worker looks at the running calls a few times a second.

It answers the request of a call that is over its deadline, and logs where the call is. The call can't be
trusted to end: a coroutine or a greenlet is told to, its later output counts for nothing, and its worker
is replaced.
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
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import FrameType
from typing import Any, Protocol

from tfs_proxy.values.errors import ScriptTimeout

log = logging.getLogger(__name__)

TICK_SECONDS = 0.25
IDLE_TICK_SECONDS = 1.0
"""Pause while no call runs: a call that begins meanwhile is not over its deadline sooner."""

NOWHERE = "an unknown line"
KINDS = ("cr", "ag", "gi")
WITHIN_ANOTHER = nullcontext()


class Abandoned(ConnectionResetError):
    """The request has been answered without this call, which must not write anything any more."""

    errno = errno.ECONNRESET


class Lane:
    """Executor of a call: by default the thread that makes it, which nothing can end."""

    def __init__(self, ident: int | None = None) -> None:
        self._ident = ident or threading.get_ident()

    def frames(self) -> tuple[FrameType, ...]:
        """Frames that it executes at this moment, innermost call first; empty if it has ended."""
        return frames_from(sys._current_frames().get(self._ident))  # noqa: SLF001 - the documented way

    def cancel(self, unless_over: Callable[[], bool]) -> None:
        """End the call, if that can be done at all; nothing happens once ``unless_over`` is true."""


class CoroutineLane(Lane):
    """Coroutine, or async generator, that a thread waits for by ``future``, on the event loop ``loop``."""

    def __init__(self, awaitable: Any, future: Future[Any] | None = None, loop: Lane | None = None) -> None:
        self._awaitable = awaitable
        self._future = future
        self._loop = loop

    def frames(self) -> tuple[FrameType, ...]:
        """Frames at which it waits; those of the loop, if it keeps the loop from everything else."""
        frames = []
        awaitable = self._awaitable
        while kind := next((kind for kind in KINDS if hasattr(awaitable, f"{kind}_frame")), None):
            # A running async generator may just wait for its next piece.
            if getattr(awaitable, "cr_running", False) and self._loop is not None:
                return self._loop.frames()
            frames.append(getattr(awaitable, f"{kind}_frame"))
            awaitable = getattr(awaitable, "gi_yieldfrom" if kind == "gi" else f"{kind}_await")
        return tuple(frame for frame in reversed(frames) if frame is not None)

    def cancel(self, unless_over: Callable[[], bool]) -> None:
        """Cancel the coroutine; the thread that waits for it goes on at once."""
        if self._future is not None and not unless_over():
            self._future.cancel()


class LateRequest(Protocol):
    """Request whose call is over its deadline."""

    def answer_late(self, text: str, *, streaming: bool) -> None:
        """Answer it without the call, with 504; break off if it is ``streaming``: its head was sent."""


class ScriptCall:
    """Call of the script: its deadline, its lane, and the request that it answers.

    ``streaming`` says that the head of the answer is out, and that only a piece of its body is waited for.
    """

    __slots__ = ("_watch", "deadline", "lane", "request", "streaming")

    def __init__(
        self, watch: "DeadlineWatch", request: LateRequest | None, deadline: float, *, streaming: bool
    ) -> None:
        self._watch = watch
        self.request = request
        self.streaming = streaming
        self.lane = watch.new_lane()
        self.deadline = deadline

    def __enter__(self) -> None:
        self._watch.begin(self)

    def __exit__(self, *_raised: object) -> None:
        self._watch.stop_watching(self)


class _Here(threading.local):
    """Current call and request of one thread, or one greenlet."""

    call: ScriptCall | None = None
    request: LateRequest | None = None


class DeadlineWatch:
    """Holds every call of the script to ``seconds``; one per worker, used by all its threads.

    ``folder`` is the script's, ``setting`` the one that gives it the time. ``hangs`` says that the worker
    should be replaced, ``place`` where a call hung last, ``answered`` that a call was completed since it was
    last set to False.
    """

    def __init__(self, seconds: float = math.inf, folder: str = "", setting: str = "") -> None:
        self.seconds = seconds
        self._setting = setting
        self.folder = folder
        self.new_lane: Callable[[], Lane] = Lane
        self._gave_up: Callable[[], None] = lambda: None
        self.hangs = self.answered = False
        self.place = ""
        self._here = _Here()
        self._running: set[ScriptCall] = set()
        self._abandoned: set[ScriptCall] = set()

    @property
    def hanging(self) -> int:
        """Number of abandoned calls that have not come back."""
        return len(self._abandoned)

    def serve(self, request: LateRequest | None) -> None:
        """Set the request that this thread's calls answer from here on."""
        self._here.request = request

    def call(self, *, streaming: bool = False) -> AbstractContextManager[None]:
        """Hold the block to the deadline; within another such block this one does nothing.

        Raises Abandoned if its request has been answered by now.
        """
        here = self._here
        if here.call:
            return WITHIN_ANOTHER
        return ScriptCall(self, here.request, time.monotonic() + self.seconds, streaming=streaming)

    def begin(self, call: ScriptCall) -> None:
        """Watch ``call`` from here on."""
        self._here.call = call
        self._running.add(call)

    def stop_watching(self, call: ScriptCall) -> None:
        """Stop watching ``call``; raises as `call` says."""
        self._here.call = None
        try:
            # The thread that takes the call out of the set, this one or the watch's, answers the request.
            self._running.remove(call)
        except KeyError:
            self._abandoned.discard(call)
            raise Abandoned from None
        self.answered = True

    @contextmanager
    def waiting_for_client(self) -> Iterator[None]:
        """Stop the clock of this thread's call in the block; after it the call has its whole time again."""
        call = self._here.call
        if call is None:
            yield
            return
        call.deadline = math.inf
        try:
            yield
        finally:
            call.deadline = time.monotonic() + self.seconds

    def current(self) -> ScriptCall | None:
        """Call that this thread runs."""
        return self._here.call

    def is_abandoned(self) -> bool:
        """True if this thread's call is over its deadline: then its exceptions are of no interest."""
        call = self._here.call
        return call is not None and call not in self._running

    def timeout(self) -> ScriptTimeout:
        """Make the error for the client."""
        return ScriptTimeout(
            f"The script did not answer within {self.seconds:g} seconds ({self._setting}); "
            "the server's log says where it hangs."
        )

    def start(self, new_lane: Callable[[], Lane], gave_up: Callable[[], None]) -> None:
        """Watch the calls from a thread of its own, as long as the process lives.

        ``new_lane`` makes the lane of the current call, ``gave_up`` follows the answer for one that hangs.
        """
        self.new_lane = new_lane
        self._gave_up = gave_up
        if self.seconds < math.inf:
            threading.Thread(target=self._keep_looking, name="script-watch", daemon=True).start()

    def look(self) -> None:
        """Give up every call that is over its deadline, and log where they are."""
        now = time.monotonic()
        over = Counter[str]()
        for call in [call for call in tuple(self._running) if call.deadline <= now]:
            place = place_of(call.lane.frames(), self.folder)
            if self._give_up(call):
                over[place] += 1
        for place, count in over.items():
            self.place = place
            calls, hang = ("a call", "it hangs") if count == 1 else (f"{count} calls", "they hang")
            log.error("%s of the script did not end within %g s: %s at %s", calls, self.seconds, hang, place)

    def _keep_looking(self) -> None:
        while True:
            time.sleep(TICK_SECONDS if self._running else IDLE_TICK_SECONDS)
            try:
                self.look()
            except Exception:
                log.exception("the deadline watch of the script's calls failed")

    def _give_up(self, call: ScriptCall) -> bool:
        """Answer in place of the call, and tell it to end; False if it has just ended."""
        self._abandoned.add(call)
        try:
            self._running.remove(call)
        except KeyError:
            self._abandoned.discard(call)
            return False
        self.hangs = True
        if call.request is not None:
            call.request.answer_late(str(self.timeout()), streaming=call.streaming)
        self._gave_up()
        call.lane.cancel(lambda: call not in self._abandoned)
        return True


def frames_from(frame: FrameType | None) -> tuple[FrameType, ...]:
    """Frame and its callers, innermost call first."""
    return () if frame is None else tuple(caller for caller, _ in traceback.walk_stack(frame))


def place_of(frames: tuple[FrameType, ...], folder: str) -> str:
    """Innermost line below ``folder``, as ``inference.py:42 in handler``, and the innermost of all.

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
    """Part of ``place`` within the script's folder: for clients of ``/ping``."""
    return place.partition(", which waits in ")[0]


def _line(frame: FrameType) -> str:
    return f"{frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_name}"
