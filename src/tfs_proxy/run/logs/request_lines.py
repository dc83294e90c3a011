"""Entries for output of children, nginx's lines of requests, and the requests of its error log.

nginx names only the connection in its error log. The request's own line, at its end, has connection and id.
"""

import logging
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path

from tfs_proxy.observe.logs.access import RequestLog, read_access_line
from tfs_proxy.observe.logs.entry import EntryHandler, entry_handler
from tfs_proxy.observe.logs.foreign import ForeignEvent, read_event
from tfs_proxy.observe.shared_files import LineReader
from tfs_proxy.run.process import ChildProcess
from tfs_proxy.run.programs.model_server import is_start_up
from tfs_proxy.settings.parsers import AccessLog

MODEL_SERVER, NGINX = "model server", "nginx"
HELD_SECONDS = 2.0
MOST_HELD = 1000
"""Most events that wait for the line of their request; more are shown without its id."""


class RequestLines:
    """Reads nginx's lines from ``path``; ``wanted`` chooses the requests that get an entry.

    ``catch_up`` reads nginx's error log up to now: nginx writes there before the request's own line.
    """

    def __init__(
        self,
        path: Path,
        wanted: AccessLog,
        handler: EntryHandler | None = None,
        clock: Callable[[], float] = time.monotonic,
        catch_up: Callable[[], None] = lambda: None,
    ) -> None:
        self._lines = LineReader(path)
        self._handler = handler or entry_handler()
        self.log = RequestLog(wanted, self._handler)
        self._clock = clock
        self._held: dict[int, list[tuple[float, ForeignEvent]]] = defaultdict(list)
        self._catch_up = catch_up

    def hold(self, event: ForeignEvent) -> None:
        """Keeps an event until the line of its request is there, but not for long."""
        if event.connection is None or sum(map(len, self._held.values())) >= MOST_HELD:
            self._show(event)
        else:
            self._held[event.connection].append((self._clock() + HELD_SECONDS, event))

    def read(self) -> bool:
        """Shows requests that have ended since the last time, and events that have waited for too long.

        Returns True if there were any, or events still wait.

        Reads no more than the time between two calls allows: `/ping` waits meanwhile.
        """
        found = False
        for chunk in self._lines.chunks(1):
            self._take_all(chunk)
            found = True
        if self._held:
            self._show_overdue()
        return found or bool(self._held)

    def close(self) -> None:
        """Shows everything that is left."""
        for chunk in self._lines.chunks():
            self._take_all(chunk)
        for events in self._held.values():
            for _, event in events:
                self._show(event)
        self._held.clear()
        self._lines.close()

    def _take_all(self, chunk: bytes) -> None:
        self._catch_up()
        for raw in chunk.split(b"\n"):
            self._take(raw)

    def _take(self, raw: bytes) -> None:
        line = read_access_line(raw)
        if line is None or line.connection is None:
            return
        for _, event in self._held.pop(line.connection, ()):
            self._show(event, line.request_id)
        self.log.show(line, NGINX)

    def _show_overdue(self) -> None:
        now = self._clock()
        for connection, events in list(self._held.items()):
            for due, event in [held for held in events if held[0] <= now]:
                self._show(event)
                events.remove((due, event))
            if not events:
                del self._held[connection]

    def _show(self, event: ForeignEvent, request_id: str = "") -> None:
        self._handler.write(event.entry(NGINX, None, request_id))


class ChildLog:
    """Shows events of children; ``of_request`` gets those of nginx that belong to a request."""

    def __init__(
        self, handler: EntryHandler | None = None, of_request: Callable[[ForeignEvent], None] | None = None
    ) -> None:
        self._handler = handler or entry_handler()
        self._of_request = of_request or self.write_of_nginx

    def show(self, child: ChildProcess, lines: Sequence[str]) -> None:
        """Logs an event, unless it only tells its author how a program starts."""
        event = read_event(lines)
        for_authors = _is_for_authors(child, lines[0], event)
        if not event.message or (for_authors and not logging.getLogger().isEnabledFor(logging.DEBUG)):
            return
        if event.connection is None:
            self._handler.write(event.entry(child.name, child.pid))
        else:
            self._of_request(event)

    def write_of_nginx(self, event: ForeignEvent, request_id: str = "") -> None:
        """Logs an event of nginx's, with the id of its request if that is known."""
        self._handler.write(event.entry(NGINX, None, request_id))


def _is_for_authors(child: ChildProcess, line: str, event: ForeignEvent) -> bool:
    """True if an event only tells how TensorFlow or nginx starts."""
    if child.name == NGINX:
        return event.connection is None and event.level == "info"
    return child.name.startswith(MODEL_SERVER) and is_start_up(line)
