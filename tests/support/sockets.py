"""Looks at TCP connections of this machine as the kernel lists them (Linux)."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from support.waiting import wait_until

ESTABLISHED, CLOSE_WAIT = "01", "08"
READ_SECONDS = 60.0


def wait_until_all_read(port: int, count: int) -> None:
    """Wait until the server at ``port`` has at least ``count`` connections, and has read all from each."""

    def all_read() -> bool:
        unread = [length for _, length in _connections(port)]
        return len(unread) >= count and not any(unread)

    wait_until(
        all_read,
        READ_SECONDS,
        f"the server at port {port} has read from {count} connections",
        details=lambda: list(_connections(port)),
    )


def wait_until_hung_up(port: int) -> None:
    """Wait until every client of the server at ``port`` has learnt that its connection is closed."""
    wait_until(
        lambda: {remote.state for remote in _listed() if remote.peer == port} <= {CLOSE_WAIT},
        READ_SECONDS,
        f"all connections to port {port} are closed by the server",
    )


def _connections(port: int) -> Iterator[tuple[int, int]]:
    """Each connection at ``port``, seen from the server: the client's port, and how much is unread."""
    for end in _listed():
        if end.state == ESTABLISHED and end.port == port:
            yield end.peer, end.unread


@dataclass(frozen=True)
class _End:
    """One end of a connection: its own port, that of the other end, its state, and what it has not read."""

    port: int
    peer: int
    state: str
    unread: int


def _listed() -> Iterator[_End]:
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        _, local, remote, state, queues, *_ = line.split()
        port, peer, unread = (int(word.rpartition(":")[2], 16) for word in (local, remote, queues))
        yield _End(port, peer, state, unread)
