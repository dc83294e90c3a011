"""What the clients of one server may use together: connections, memory for bodies, and time for a body."""

import asyncio
import logging
import select
import time
from typing import Protocol

from tfs_proxy.errors import Overloaded
from tfs_proxy.resources import most_descriptors

HEAD_SECONDS = 10.0
"""From a request's first byte to the end of its head: any client sends a head in one piece or two."""

GRACE_SECONDS = 10.0
LEAST_BYTES_PER_SECOND = 1024
"""What a body must bring on average after the grace: the slowest mobile network brings ten times that."""

SILENCE_SECONDS = 30.0
"""Longer than a network's hiccup, and no longer: a client that has vanished never says so."""

SEND_SECONDS = 60.0
"""How long a client may take nothing of its answer, as with nginx."""

ACCEPTED_AT_ONCE = 4
"""Connections that an event loop accepts before it looks at one of them."""

_SHED_SHARE = 64
_WARNING_SECONDS = 60.0
_WAIT_SECONDS, _LOOK_SECONDS = 5.0, 0.05

log = logging.getLogger(__name__)


def body_deadline(began: float, last_byte: float, size_bytes: int) -> float:
    """When a body of which ``size_bytes`` have come has taken too long, by the clock of the other two."""
    return min(began + GRACE_SECONDS + size_bytes / LEAST_BYTES_PER_SECOND, last_byte + SILENCE_SECONDS)


class Connection(Protocol):
    """A client's connection that may be closed for another one."""

    @property
    def is_idle(self) -> bool:
        """Whether nothing of a request has come."""

    @property
    def is_owed(self) -> bool:
        """Whether a whole request waits for its answer."""

    @property
    def has_unread(self) -> bool:
        """Whether the client has sent what nobody has looked at."""

    def shed(self) -> None:
        """Close it without an answer."""


class OpenConnections:
    """All connections of one server, at most ``most``: half of the descriptors: requests need some, too.

    Beyond that those that have been idle for longest are closed for new ones, then those whose
    requests have been arriving for longest; one with a whole request never is.
    """

    def __init__(self, most: int | None = None) -> None:
        self._most = max(1, most_descriptors() // 2) if most is None else most
        self._by_last_use: dict[Connection, None] = {}
        self._warn_at = 0.0

    def add(self, connection: Connection) -> bool:
        """Count a connection that was accepted, if there is room for it; else the caller refuses it."""
        has_room = len(self._by_last_use) < self._most or self._make_room()
        if has_room:
            self._by_last_use[connection] = None
        return has_room

    def use(self, connection: Connection) -> None:
        """Note that a connection was not idle until now."""
        if connection in self._by_last_use:
            del self._by_last_use[connection]
            self._by_last_use[connection] = None

    def discard(self, connection: Connection) -> None:
        """Count a connection no longer; idempotent."""
        self._by_last_use.pop(connection, None)

    def _make_room(self) -> bool:
        self._warn()
        silent = [
            connection
            for connection in self._by_last_use
            if not connection.is_owed and not connection.has_unread
        ]
        silent.sort(key=lambda connection: not connection.is_idle)
        # PERF: several, since looking for them takes time.
        for connection in silent[: 1 + len(silent) // _SHED_SHARE]:
            self.discard(connection)
            connection.shed()
        return bool(silent)

    def _warn(self) -> None:
        """Say now and then that there are too many."""
        now = time.monotonic()
        if now >= self._warn_at:
            self._warn_at = now + _WARNING_SECONDS
            log.warning("%d connections are open: idle ones are closed for new ones", self._most)


def is_readable(transport: asyncio.BaseTransport) -> bool:
    """Whether something waits to be read from a transport's socket."""
    descriptor = transport.get_extra_info("socket").fileno()
    if descriptor < 0:
        return False
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(0))


class BodyMemory:
    """Bytes that the bodies of all requests may take together; of one event loop."""

    def __init__(self, limit_bytes: int, wait_seconds: float = _WAIT_SECONDS) -> None:
        self._limit_bytes = limit_bytes
        self._wait_seconds = wait_seconds
        self._held_bytes = 0

    async def take(self, size_bytes: int) -> None:
        """Wait for ``size_bytes`` to be free; raises Overloaded without them."""
        deadline = time.monotonic() + self._wait_seconds
        while self._held_bytes + size_bytes > self._limit_bytes:
            if time.monotonic() >= deadline:
                raise Overloaded(
                    "Other large requests have the memory that this one needs: try again. "
                    "TFS_PROXY_MAX_DECODED_TOTAL_MB sets how much all together may take."
                )
            await asyncio.sleep(_LOOK_SECONDS)
        self._held_bytes += size_bytes

    def give_back(self, size_bytes: int) -> None:
        """Give back what was taken."""
        self._held_bytes -= size_bytes
