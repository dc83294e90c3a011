"""Where a call of the script is right now, as a file and a line: what the log names when a call hangs."""

import os
import sys
import threading
import traceback
from types import FrameType
from typing import Any

NOWHERE = "an unknown line"


def frames_of_thread(ident: int) -> tuple[FrameType, ...]:
    """What a thread executes at this moment, innermost call first; empty if there is no such thread."""
    return frames_from(sys._current_frames().get(ident))  # noqa: SLF001 - the documented way


def frames_from(frame: FrameType | None) -> tuple[FrameType, ...]:
    """``frame`` and its callers, innermost call first."""
    return () if frame is None else tuple(caller for caller, _ in traceback.walk_stack(frame))


def frames_of_coroutine(awaitable: Any, loop_thread: threading.Thread | None) -> tuple[FrameType, ...]:
    """Where a coroutine or an async generator waits, innermost call first.

    One that runs, and so keeps its event loop from everything else, is where ``loop_thread`` is.
    """
    frames = []
    while awaitable is not None:
        # Of an async generator, running says only that its next piece is waited for.
        if getattr(awaitable, "cr_running", False) and loop_thread is not None:
            return frames_of_thread(loop_thread.ident or 0)
        frame = _attribute(awaitable, "frame")
        if frame is not None:
            frames.append(frame)
        awaitable = _attribute(awaitable, "await")
    return tuple(reversed(frames))


def place_of(frames: tuple[FrameType, ...], folder: str) -> str:
    """The innermost line below ``folder``, as ``inference.py:42 in handler``, and the innermost of all.

    ``frames`` begin with the innermost call; ``folder`` is the script's.
    """
    if not frames:
        return NOWHERE
    below = os.path.join(folder, "")  # noqa: PTH118 - a prefix of names, no file access
    own = next((frame for frame in frames if folder and frame.f_code.co_filename.startswith(below)), None)
    if own is None:
        return _line(frames[0], frames[0].f_code.co_filename)
    location = _line(own, own.f_code.co_filename.removeprefix(below))
    if own is frames[0]:
        return location
    return f"{location}, which waits in {_line(frames[0], frames[0].f_code.co_filename)}"


def own_part(place: str) -> str:
    """``place`` without what lies outside the script's folder: for clients of ``/ping``."""
    return place.partition(", which waits in ")[0]


def _attribute(awaitable: Any, name: str) -> Any:
    """``cr_``, ``ag_`` or ``gi_`` and ``name`` of a coroutine or generator of any kind; None without."""
    values = (getattr(awaitable, f"{kind}_{name}", None) for kind in ("cr", "ag", "gi"))
    if name == "await" and (inner := getattr(awaitable, "gi_yieldfrom", None)) is not None:
        return inner
    return next((value for value in values if value is not None), None)


def _line(frame: FrameType, name: str) -> str:
    return f"{name}:{frame.f_lineno} in {frame.f_code.co_name}"
