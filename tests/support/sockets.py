"""Looks at TCP connections of this machine as the kernel lists them (Linux)."""

from collections.abc import Iterator
from pathlib import Path

from support.waiting import wait_until

ESTABLISHED = "01"
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


def _connections(port: int) -> Iterator[tuple[int, int]]:
    """Each connection at ``port``, seen from the server: the client's port, and how much is unread."""
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        _, local, remote, state, queues, *_ = line.split()
        own, peer, unread = (int(word.rpartition(":")[2], 16) for word in (local, remote, queues))
        if (own, state) == (port, ESTABLISHED):
            yield peer, unread
