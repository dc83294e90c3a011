"""Entries for nginx's lines of requests."""

from pathlib import Path

from tfs_proxy.observe.logs.access import RequestLog, read_access_line
from tfs_proxy.observe.logs.entry import EntryHandler, entry_handler
from tfs_proxy.observe.logs.foreign import NGINX
from tfs_proxy.observe.shared_files import LineReader
from tfs_proxy.settings.parsers import AccessLog


class RequestLines:
    """Reads nginx's lines from ``path``; ``wanted`` chooses the requests that get an entry."""

    def __init__(
        self,
        path: Path,
        wanted: AccessLog,
        handler: EntryHandler | None = None,
    ) -> None:
        self._lines = LineReader(path)
        self.log = RequestLog(wanted, handler or entry_handler())

    def read(self) -> bool:
        """Shows requests that have ended since the last time; returns True if there were any.

        Reads no more than the time between two calls allows: `/ping` waits meanwhile.
        """
        found = False
        for chunk in self._lines.chunks(1):
            self._take_all(chunk)
            found = True
        return found

    def close(self) -> None:
        """Shows everything that is left."""
        for chunk in self._lines.chunks():
            self._take_all(chunk)
        self._lines.close()

    def _take_all(self, chunk: bytes) -> None:
        for raw in chunk.split(b"\n"):
            self._take(raw)

    def _take(self, raw: bytes) -> None:
        line = read_access_line(raw)
        if line is None or line.connection is None:
            return
        self.log.show(line, NGINX)
