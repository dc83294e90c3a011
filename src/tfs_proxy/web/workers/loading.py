"""A worker that is loading: its heartbeats, the script's current line, and its end at the limit."""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tfs_proxy.script.deadline import Lane, own_part, place_of

log = logging.getLogger(__name__)

PAUSE_SECONDS = 1.0


@contextmanager
def watched_loading(
    lane: Lane,
    script_folder: str,
    limit_seconds: float,
    alive: Callable[[str], None],
    give_up: Callable[[], None],
) -> Iterator[None]:
    """Watch imports and ``init``, which ``lane`` runs: they may outlast gunicorn's timeout, not the limit.

    ``alive`` is called once in a while with the line of the script, ``give_up`` beyond ``limit_seconds``.
    """
    done = threading.Event()
    deadline = time.monotonic() + limit_seconds

    def watch() -> None:
        while not done.wait(PAUSE_SECONDS):
            line = place_of(lane.frames(), script_folder)
            if time.monotonic() > deadline:
                log.error(
                    "the script was not loaded within SAGEMAKER_TFS_WAIT_TIME_SECONDS=%g: hangs at %s",
                    limit_seconds,
                    line,
                )
                give_up()
            alive(own_part(line))

    thread = threading.Thread(target=watch, name="loading", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
