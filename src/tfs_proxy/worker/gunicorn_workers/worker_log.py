"""Log of gunicorn and its workers: entries go directly to where the supervisor's go.

So no worker waits for the supervisor. Only output that bypasses Python (libraries in C, programs that a
script starts) goes through the supervisor, which makes entries of it.
"""

import logging
import os
import sys

from tfs_proxy.observe.logs.config import STDERR, LogConfig, set_level
from tfs_proxy.observe.logs.entry import EntryHandler, writer
from tfs_proxy.observe.logs.streams import LoggedStream
from tfs_proxy.observe.request_record import RequestRecord, handling
from tfs_proxy.settings.settings import inherited_environment

STDOUT = 1


def gunicorn_handler() -> EntryHandler:
    """Handler of gunicorn's master, which its workers inherit."""
    config = LogConfig.inherited(inherited_environment())
    if config.descriptor != STDERR:
        os.set_inheritable(config.descriptor, False)  # programs that a script starts must not keep it open
    master = os.getpid()
    write = writer(config.form, coloured=config.coloured)
    return EntryHandler(write, config.descriptor, lambda: "gunicorn" if os.getpid() == master else "worker")


class WorkerLog:
    """Log and output of a worker, with the requests' ids."""

    def __init__(self, error_log: logging.Logger) -> None:
        collect_logs(error_log)
        set_level(logging.getLevelName(error_log.getEffectiveLevel()).lower())
        self._streams: tuple[LoggedStream, ...] = ()
        handler = next((handler for handler in error_log.handlers if isinstance(handler, EntryHandler)), None)
        if handler is not None:
            self._print_to(handler)

    def _print_to(self, handler: EntryHandler) -> None:
        output = sys.stdout = LoggedStream(handler.say, "info", STDOUT)
        errors = sys.stderr = LoggedStream(handler.say, "warning", STDERR)
        self._streams = (output, errors)

    def end(self, record: RequestRecord) -> None:
        """Write the request's output without a line end."""
        for stream in self._streams:
            if stream.unfinished:
                with handling(record):
                    stream.finish(record)

    def finish(self) -> None:
        """Write this thread's output without a line end."""
        for stream in self._streams:
            stream.finish()


def collect_logs(error_log: logging.Logger) -> None:
    """Give gunicorn's handlers and level to every logger: ours, libraries', and the script's."""
    root = logging.getLogger()
    if not root.handlers:
        root.handlers = list(error_log.handlers)
        root.setLevel(error_log.level)
