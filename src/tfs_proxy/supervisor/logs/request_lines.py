"""nginx's lines of requests as entries, and the requests that lines of its error log belong to.

nginx names only the connection in its error log. The request's own line, at its end, has connection and id.
"""

import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

from tfs_proxy.observe.line_file import LineReader
from tfs_proxy.observe.logs.access import read_access_line
from tfs_proxy.observe.logs.foreign import ForeignEvent
from tfs_proxy.observe.logs.handler import EntryHandler, entry_handler
from tfs_proxy.observe.logs.request_log import RequestLog
from tfs_proxy.setting_values import AccessLog

PROCESS = "nginx"
HELD_SECONDS = 2.0
MOST_HELD = 1000
"""Events at a time that wait for the line of their request; more are shown without its id."""


class RequestLines:
    """Reads what nginx writes to ``path``; ``wanted`` says which requests get an entry.

    ``catch_up`` hands over what nginx's error log has by now: it writes there before the request's own line.
    """

    def __init__(
        self,
        path: Path,
        wanted: AccessLog,
        handler: EntryHandler | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._lines = LineReader(path)
        self._handler = handler or entry_handler()
        self.log = RequestLog(wanted, self._handler)
        self._clock = clock
        self._held: dict[int, list[tuple[float, ForeignEvent]]] = defaultdict(list)
        self.catch_up: Callable[[], None] = lambda: None

    def hold(self, event: ForeignEvent) -> None:
        """Keep an event until the line of its request is there, but not for long."""
        if event.connection is None or sum(map(len, self._held.values())) >= MOST_HELD:
            self._show(event)
        else:
            self._held[event.connection].append((self._clock() + HELD_SECONDS, event))

    def read(self) -> bool:
        """Show requests that have ended since the last time, and what has waited for too long.

        Returns whether there were any, or events still wait.

        Not more of them than take the time between two calls: `/ping` waits meanwhile.
        """
        found = False
        for chunk in self._lines.chunks(1):
            self._take_all(chunk)
            found = True
        if self._held:
            self._show_overdue()
        return found or bool(self._held)

    def close(self) -> None:
        """Show everything that is left."""
        for chunk in self._lines.chunks():
            self._take_all(chunk)
        for events in self._held.values():
            for _, event in events:
                self._show(event)
        self._held.clear()
        self._lines.close()

    def _take_all(self, chunk: bytes) -> None:
        self.catch_up()
        for raw in chunk.split(b"\n"):
            self._take(raw)

    def _take(self, raw: bytes) -> None:
        line = read_access_line(raw)
        if line is None or line.connection is None:
            return
        for _, event in self._held.pop(line.connection, ()):
            self._show(event, line.request_id)
        self.log.show(line, PROCESS)

    def _show_overdue(self) -> None:
        now = self._clock()
        for connection, events in list(self._held.items()):
            for due, event in [held for held in events if held[0] <= now]:
                self._show(event)
                events.remove((due, event))
            if not events:
                del self._held[connection]

    def _show(self, event: ForeignEvent, request_id: str = "") -> None:
        self._handler.write(event.entry(PROCESS, None, request_id))
