"""Reports of a worker to the supervisor: its state, from a thread of its own, and why it can't be loaded.

The thread begins after the fork. It can't run while a script holds the interpreter's lock, nor while the
process is stopped: such a worker goes missing, as it should. In a worker of gevent it is a greenlet.
"""

import logging
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from tfs_proxy.observe.stage_counts import StageCounts
from tfs_proxy.serving.script.deadline import Lane, own_part, place_of
from tfs_proxy.serving.upstream.instances import TIMEOUT_SECONDS, report_state
from tfs_proxy.values.deployment import BootFailure, WorkerOrder, WorkerState
from tfs_proxy.values.errors import ScriptLoadError, TfsProxyError, UpstreamError
from tfs_proxy.wire.shortages import shortage

log = logging.getLogger(__name__)

TICK_SECONDS = 1.0
IDLE_SECONDS = 5.0

PAUSE_SECONDS = 0.02
REPORT_CHARACTERS = 16_000
"""Longest part of a traceback; its end tells the most."""


class Reports:
    """Sender of the result of ``state`` to the control API; ``tick`` is called once a second before that.

    ``obey`` is called with each order of the supervisor. ``stages`` go along, each request once.
    """

    def __init__(
        self,
        control_socket: Path,
        state: Callable[[], WorkerState],
        tick: Callable[[], None],
        obey: Callable[[WorkerOrder], None],
        stages: StageCounts,
    ) -> None:
        self._control_socket = control_socket
        self._stages = stages
        self._state = state
        self._tick = tick
        self._obey = obey
        self._lock = threading.Lock()
        self._sent: WorkerState | None = None
        self._sent_at = 0.0

    def start(self) -> None:
        """Send the state now, waiting for the answer, and from now on as long as this process lives."""
        self.deliver()
        threading.Thread(target=self._keep_sending, name="reports", daemon=True).start()

    def deliver(self) -> bool:
        """Send the state, trying for a while until it arrives; True if this worker may accept."""
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while True:
            with self._lock:
                order = self._send(self._state())
            if order is not None or time.monotonic() > deadline:
                return order not in {None, WorkerOrder.WAIT}
            time.sleep(PAUSE_SECONDS)

    def send_last(self) -> None:
        """Send what the requests since the last report have left, once."""
        with self._lock:
            self._send(self._state())

    def _keep_sending(self) -> None:
        while True:
            time.sleep(TICK_SECONDS)
            self._tick()
            with self._lock:
                state = self._state()
                due = state != self._sent or time.monotonic() >= self._sent_at + IDLE_SECONDS
                if due or state.answered or self._stages:
                    self._send(state)

    def _send(self, state: WorkerState) -> WorkerOrder | None:
        """Send the state, and obey the order; None if no supervisor answers."""
        self._sent = replace(state, health=None)
        if state.health is None:  # an answer does not delay the idle report that brings the next question
            self._sent_at = time.monotonic()
        stages = self._stages.take()
        try:
            order = report_state(self._control_socket, replace(state, stages=stages))
        except UpstreamError as error:
            self._stages.add(stages)
            log.debug("the supervisor does not hear of this worker: %s", error)
            return None
        self._obey(order)
        return order


class Loading(Struct, frozen=True):
    """Imports and ``init`` of a script in ``folder``, which ``lane`` runs, for ``limit_seconds``."""

    lane: Lane
    folder: str
    limit_seconds: float
    deadline: float

    def line(self) -> str:
        """Line of the script that it is at."""
        return own_part(place_of(self.lane.frames(), self.folder))

    def is_late(self) -> bool:
        """True if the limit is over, which is logged."""
        late = time.monotonic() > self.deadline
        if late:
            log.error(
                "the script was not loaded within SAGEMAKER_TFS_WAIT_TIME_SECONDS=%g: hangs at %s",
                self.limit_seconds,
                place_of(self.lane.frames(), self.folder),
            )
        return late


def boot_failure(error: Exception) -> BootFailure:
    """Reason why this worker can't load the application, with a traceback unless the error needs none."""
    if isinstance(error, ScriptLoadError):
        text = str(error)
        report = error.report
    elif isinstance(error, TfsProxyError) or shortage(error):
        text = shortage(error) or str(error)
        report = ""
    else:
        text = f"A worker can't start: {type(error).__name__}: {error}"
        report = "".join(traceback.format_exception(error)).rstrip()
    return BootFailure(text, report[-REPORT_CHARACTERS:])
