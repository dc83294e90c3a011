"""Calls of the script over their deadline: their answers, and the end of the worker that has them.

`worker.gunicorn_workers.master` learns of such a call, and starts another worker before it ends this one.
"""

import logging
import os
import socket
import sys
import threading
from collections.abc import Callable
from contextlib import suppress

from tfs_proxy.serving.script.deadline import DeadlineWatch, ScriptCall
from tfs_proxy.worker.gunicorn_workers.refusals import Refusal

log = logging.getLogger(__name__)

SOCKET = "gunicorn.socket"

CLOSE_SECONDS = 5.0


def answer_for(call: ScriptCall, watch: DeadlineWatch, request_id: str | None) -> None:
    """Answer 504 on the call's connection, or break it if the head of its answer was sent."""
    connection = call.connection
    with suppress(OSError):
        if connection is not None and not call.streaming:
            refused = Refusal(504, str(watch.timeout()))
            connection.send(refused.response(request_id), socket.MSG_DONTWAIT)
        if connection is not None:
            connection.shutdown(socket.SHUT_RDWR if call.streaming else socket.SHUT_WR)


def end_with_hanging_calls(close_app: Callable[[], None]) -> None:
    """End this process, whose threads would keep it: nothing after this line is run.

    The script's ``close()`` may wait for something that a hanging call holds, so it has a limit.
    """
    log.info("all other requests have been answered: this worker ends")
    closing = threading.Thread(target=close_app, name="closing", daemon=True)
    closing.start()
    closing.join(CLOSE_SECONDS)
    end_now()


def end_now(status: int = 0) -> None:
    """End this process without waiting for any thread."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
