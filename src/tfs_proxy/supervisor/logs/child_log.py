"""What children print, as entries of the log: nginx, model servers, and what bypasses Python in workers."""

import logging
from collections.abc import Callable, Sequence

from tfs_proxy.observe.logs.foreign import ForeignEvent, read_event
from tfs_proxy.observe.logs.handler import EntryHandler, entry_handler
from tfs_proxy.supervisor.process import ChildProcess
from tfs_proxy.supervisor.programs.model_server import is_start_up

MODEL_SERVER, NGINX = "model server", "nginx"


class ChildLog:
    """Shows events of children; those of nginx that belong to a request go through ``of_request`` first."""

    def __init__(self, handler: EntryHandler | None = None) -> None:
        self._handler = handler or entry_handler()
        self.of_request: Callable[[ForeignEvent], None] = self.write_of_nginx

    def show(self, child: ChildProcess, lines: Sequence[str]) -> None:
        """Log an event, unless it only tells its author how a program starts."""
        event = read_event(lines)
        for_authors = _is_for_authors(child, lines[0], event)
        if not event.message or (for_authors and not logging.getLogger().isEnabledFor(logging.DEBUG)):
            return
        if event.connection is None:
            self._handler.write(event.entry(child.name, child.pid))
        else:
            self.of_request(event)

    def write_of_nginx(self, event: ForeignEvent, request_id: str = "") -> None:
        """Log an event of nginx's, with the id of its request if that is known."""
        self._handler.write(event.entry(NGINX, None, request_id))


def _is_for_authors(child: ChildProcess, line: str, event: ForeignEvent) -> bool:
    """Whether an event only tells how TensorFlow or nginx starts."""
    if child.name == NGINX:
        return event.connection is None and event.level == "info"
    return child.name.startswith(MODEL_SERVER) and is_start_up(line)
