"""Writes the lines of requests into the log of this process."""

import logging

from tfs_proxy.observe.logs.access import RequestLine, is_shown
from tfs_proxy.observe.logs.handler import EntryHandler, entry_handler
from tfs_proxy.setting_values import AccessLog


class RequestLog:
    """Shows the requests that ``wanted`` asks for, from the level of the log on."""

    def __init__(self, wanted: AccessLog, handler: EntryHandler | None = None) -> None:
        self._wanted = wanted
        self._handler = handler or entry_handler()

    def show(self, line: RequestLine, process: str, pid: int | None = None) -> None:
        """Log a request that ``process`` has answered, if it is one of those that get a line."""
        if not is_shown(line, self._wanted):
            return
        entry = line.entry(process, pid)
        if logging.getLogger().isEnabledFor(getattr(logging, entry.level.upper())):
            self._handler.write(entry)
