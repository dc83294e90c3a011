"""Record of one request in a worker: its id, its model, and the time in each of its stages.

Code that handles the request finds its record by `current_request`, in any thread or coroutine that the
request's context reaches; logs and metrics read the record when the request has ended.
"""

import logging
import math
import os
import re
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from types import TracebackType
from typing import Protocol

from msgspec import Struct, field

from tfs_proxy.values.errors import ClientGone, Overloaded

log = logging.getLogger(__name__)

STAGES = ("wait", "read", "input_handler", "convert", "model_server", "output_handler", "write")
"""Stages in the order of a request; a script with a ``handler`` is all in ``input_handler``."""

WAIT, READ, INPUT_HANDLER, CONVERT, MODEL_SERVER, OUTPUT_HANDLER, WRITE = range(len(STAGES))

PLAIN_ID = "[A-Za-z0-9._:/+=@-]{1,128}"
"""Pattern of ids: all that UUIDs, ARNs and trace ids need, and no character with a meaning in a log."""

_ID = re.compile(PLAIN_ID)
LOOK_SECONDS = 0.01
"""Time for which a client that was there is not looked for: a look lets other threads run."""

SERVER_TIMING = "Server-Timing"
"""Header with the stages of a request, for clients that ask for it."""


_LAST_WAITS: deque[float] = deque(maxlen=8)


class Trace(Protocol):
    """Trace of one request, which makes a span of each stage."""

    def stage(self, number: int, name: str, /) -> AbstractContextManager[None]:
        """Make a span for a block; ``name`` is the script's function, or ""."""


class RequestRecord(Struct, eq=False):
    """State of a request so far; times are of `time.perf_counter`, in seconds."""

    request_id: str
    """Id of the request, SageMaker's, the client's or a new one."""

    method: str = ""
    """Method of HTTP."""

    target: str = ""
    """Path with its query."""

    model: str = ""
    """Name of the model that it asks for; "" if it has not been read that far."""

    version: str = ""
    """Version or label that it asks for, as text; "" if it has not been read that far, or names none."""

    status: int = 0
    """HTTP status; 0 until the answer begins."""

    bytes_in: int = 0
    """Size of the body in bytes, as it came."""

    bytes_out: int = 0
    """Size of the answer's body in bytes."""

    records: int | None = None
    """Number of records; None if they were not counted."""

    decoded: Mapping[str, tuple[str, tuple[int, ...]]] | None = None
    """Dtype and shape by input name; None if the body was not decoded to arrays."""

    seconds: list[float] = field(default_factory=lambda: [0.0] * len(STAGES))
    """Time spent in each of `STAGES`, without inner ones."""

    trace: Trace | None = None
    """Trace that makes a span of each stage; None if the request is not traced."""

    inner: float = 0.0
    """Time spent in stages that lie within the present one."""

    under_way: int | None = None
    """Number of the present stage; None between stages."""

    failed_stage: int | None = None
    """Number of the stage of the first error, which the request may have survived; None without any."""

    reason: str = ""
    """Reason why it is refused (see `observe.logs.reasons`); "" if it is not."""

    began: float = field(default_factory=time.perf_counter)
    """Time when its handling began, after any wait for a worker."""

    deadline: float = math.inf
    """End of the timeout that it names; infinite if it names none."""

    hung_up: Callable[[], bool] = lambda: False
    """Function that asks the system if the client has closed its connection."""

    seen: float = 0.0
    """Time when the client was looked for last."""

    gone: str = ""
    """Sentence that says that the client has gone, and in which stage; "" while it is there."""

    def lost_in(self, stage_number: int) -> str:
        """Look if the client has gone, which is logged once; returns `gone`."""
        now = time.perf_counter()
        if not self.gone and now >= self.seen + LOOK_SECONDS:
            self.seen = now
            if self.hung_up():
                self.gone = f"the client has gone: dropped in the stage {STAGES[stage_number]}"
                log.info("%s, after %.1f s", self.gone, self.seconds[WAIT] + now - self.began)
        return self.gone


def new_id() -> str:
    """Make an id that no other request has."""
    return os.urandom(16).hex()  # a UUID has fixed bits


_CURRENT: ContextVar[RequestRecord | None] = ContextVar("request", default=None)


def current_request() -> RequestRecord | None:
    """Record of the request that this thread or coroutine handles; None outside of requests."""
    return _CURRENT.get()


def current_id() -> str:
    """Id of the current request; a new one outside of requests."""
    record = _CURRENT.get()
    return new_id() if record is None else record.request_id


def set_current_request(record: RequestRecord | None) -> None:
    """Set the request that this thread or coroutine handles from here on."""
    _CURRENT.set(record)


def note_model(model: str, version: int | str | None = None) -> None:
    """Note the model, and the version or label, that the current request asks for."""
    record = _CURRENT.get()
    if record is not None:
        record.model = model
        record.version = "" if version is None else str(version)


def note_size(bytes_in: int) -> None:
    """Note the size of the current request's body as it came."""
    record = _CURRENT.get()
    if record is not None:
        record.bytes_in = bytes_in


def note_records(count: int | None) -> None:
    """Note the number of records of the current request; the first note stands."""
    record = _CURRENT.get()
    if record is not None and record.records is None:
        record.records = count


def note_decoded(arrays: Mapping[str, tuple[str, tuple[int, ...]]]) -> None:
    """Note dtype and shape by input name of the decoded body."""
    record = _CURRENT.get()
    if record is not None:
        record.decoded = arrays


def note_failed(stage_number: int) -> None:
    """Note that the current request fails in this stage; the first note stands."""
    record = _CURRENT.get()
    if record is not None and record.failed_stage is None:
        record.failed_stage = stage_number


def check_wait(most_seconds: float) -> None:
    """Raise Overloaded if the current request has waited for a worker for longer than the setting says."""
    record = _CURRENT.get()
    if record is not None:
        _LAST_WAITS.append(record.seconds[WAIT])
        _refuse_late(record, most_seconds, "TFS_PROXY_MAX_WAIT_SECONDS")


def note_timeout(seconds: float | None) -> None:
    """Set the timeout that the current request names, if any; raises Overloaded if it has waited longer."""
    record = _CURRENT.get()
    if record is not None and seconds is not None:
        _refuse_late(record, seconds, 'its parameter "timeout"')
        record.deadline = record.began - record.seconds[WAIT] + seconds


def _refuse_late(record: RequestRecord, most_seconds: float, limit: str) -> None:
    if record.seconds[WAIT] > most_seconds:
        note_failed(WAIT)
        waited = f"The request has waited {record.seconds[WAIT]:.3g} s for a worker"
        raise Overloaded(f"{waited}, longer than {limit} allows: {most_seconds:g} s. Send it again later.")


def seconds_left() -> float:
    """Time until the current request's deadline, at least a millisecond; infinite if it has none."""
    record = _CURRENT.get()
    return math.inf if record is None else max(record.deadline - time.perf_counter(), 0.001)


def retry_seconds() -> int:
    """Time after which a request is worth sending again: the wait of the last ones, rounded up."""
    return max(1, math.ceil(sum(_LAST_WAITS) / max(len(_LAST_WAITS), 1)))


def client_watch() -> Callable[[], bool]:
    """Function that tells whether the client of the current request has closed its connection."""
    record = _CURRENT.get()
    return (lambda: False) if record is None else record.hung_up


def require_client() -> None:
    """Raise ClientGone if nobody waits for the answer to the current request any more."""
    record = _CURRENT.get()
    if record is not None and (gone := record.lost_in(record.under_way or WAIT)):
        raise ClientGone(gone)


@contextmanager
def handling(record: RequestRecord) -> Iterator[RequestRecord]:
    """Set the current request for a block."""
    token = _CURRENT.set(record)
    try:
        yield record
    finally:
        _CURRENT.reset(token)


class stage:  # noqa: N801 - used as a statement: `with stage(CONVERT):`
    """Count the time in the block as this stage of the current request, inner stages apart.

    ``name`` is the script's function that does its work. An error that leaves the block arose in this stage,
    unless an inner one has noted it.
    """

    __slots__ = ("_began", "_name", "_outer", "_outer_stage", "_record", "_span", "_stage")

    def __init__(self, number: int, name: str = "") -> None:
        self._stage = number
        self._name = name

    def __enter__(self) -> None:
        record = self._record = _CURRENT.get()
        if record is None:
            return
        self._outer = record.inner
        record.inner = 0.0
        self._outer_stage = record.under_way
        record.under_way = self._stage
        if record.trace is not None:
            self._span = record.trace.stage(self._stage, self._name)
            self._span.__enter__()
        self._began = time.perf_counter()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        record = self._record
        if record is None:
            return
        seconds = time.perf_counter() - self._began
        if seconds > record.inner:  # inner ones may overlap, in threads
            record.seconds[self._stage] += seconds - record.inner
        record.inner = self._outer + seconds
        record.under_way = self._outer_stage
        if error is not None and record.failed_stage is None:
            record.failed_stage = self._stage
        if record.trace is not None:
            self._span.__exit__(kind, error, traceback)


def chosen_id(inference_id: str | None, request_id: str | None) -> str:
    """Choose an id: SageMaker's, else the client's, else a new one; one that is not plain is replaced."""
    for text in (inference_id, request_id):
        if text and _ID.fullmatch(text):
            return text
    return new_id()


def server_timing(record: RequestRecord) -> str:
    """List the stages that the request has passed, in milliseconds, and the whole time until now."""
    timed = [(name, seconds) for name, seconds in zip(STAGES, record.seconds, strict=True) if seconds]
    timed.append(("total", record.seconds[WAIT] + time.perf_counter() - record.began))
    return ", ".join(f"{name};dur={1000 * seconds:.2f}" for name, seconds in timed)
