"""Log of gunicorn and its workers: entries go directly to where the supervisor's go.

So no worker waits for the supervisor. Only output that bypasses Python (libraries in C, programs that a
script starts) goes through the supervisor, which makes entries of it.
"""

import logging
import os

from tfs_proxy.observe.logs.entry import STDERR, EntryHandler, LogConfig, set_level
from tfs_proxy.observe.logs.printed import print_to
from tfs_proxy.observe.request_record import RequestRecord, handling
from tfs_proxy.settings.settings import inherited_environment


def gunicorn_handler() -> EntryHandler:
    """Handler of gunicorn's master, which its workers inherit."""
    config = LogConfig.inherited(inherited_environment())
    if config.descriptor != STDERR:
        os.set_inheritable(config.descriptor, False)  # programs that a script starts must not keep it open
    master = os.getpid()
    return EntryHandler(config, lambda: "gunicorn" if os.getpid() == master else "worker")


class WorkerLog:
    """Log and output of a worker, with the requests' ids: of our loggers, libraries' and the script's."""

    def __init__(self, error_log: logging.Logger) -> None:
        root = logging.getLogger()
        if not root.handlers:
            root.handlers = list(error_log.handlers)
        set_level(logging.getLevelName(error_log.getEffectiveLevel()).lower())
        handlers = (handler for handler in error_log.handlers if isinstance(handler, EntryHandler))
        self._streams = print_to(next(handlers))

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
