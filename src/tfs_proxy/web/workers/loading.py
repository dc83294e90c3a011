"""A worker that is loading: its heartbeats, the script's current line, and its end at the limit."""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tfs_proxy.script.deadline import Lane
from tfs_proxy.script.tracebacks_of_threads import own_part, place_of

log = logging.getLogger(__name__)

PAUSE_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Loading:
    """What loads, from the ``lane`` that does it: ``folder`` is the script's.

    ``alive`` is called once in a while with the place where the script is, ``give_up`` beyond
    ``limit_seconds``.
    """

    lane: Lane
    folder: str
    limit_seconds: float
    alive: Callable[[str], None]
    give_up: Callable[[], None]

    @contextmanager
    def watched(self, pause_seconds: float = PAUSE_SECONDS) -> Iterator[None]:
        """Imports and ``init`` may outlast gunicorn's timeout, but not the limit of the start."""
        done = threading.Event()
        thread = threading.Thread(target=self._watch, args=(done, pause_seconds), name="loading", daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()

    def _watch(self, done: threading.Event, pause_seconds: float) -> None:
        deadline = time.monotonic() + self.limit_seconds
        while not done.wait(pause_seconds):
            place = place_of(self.lane.frames(), self.folder)
            if time.monotonic() > deadline:
                log.error(
                    "the script was not loaded within SAGEMAKER_TFS_WAIT_TIME_SECONDS=%g: hangs at %s",
                    self.limit_seconds,
                    place,
                )
                self.give_up()
            self.alive(own_part(place))
