"""Ports for servers that bind them seconds later: nobody else on this machine may take one until then."""

import contextlib
import fcntl
import itertools
import os
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

PORTS = range(4000, 8000)
"""Below those that the kernel gives to clients, that the product chooses for itself, and that Ray uses."""
BLOCK = 100
REFUSED_BY_BROWSERS = {4045, 4190, 5060, 5061, 6000, 6566, *range(6665, 6670), 6679, 6697}
"""The Fetch standard's bad ports among them: chromium shows a page of its own instead of asking."""


def free_port() -> int:
    """A loopback port that nothing listens on, and that no test of this or another process has had before."""
    for port in _ports:
        with contextlib.suppress(OSError), socket.socket() as holder:
            holder.bind(("127.0.0.1", port))
            return port
    raise AssertionError(f"other runs of tests have all ports from {PORTS.start} to {PORTS.stop - 1}")


def free_range(count: int) -> int:
    """The first of ``count`` loopback ports in a row that nothing listens on, and no client is given by the kernel."""
    for low in range(20_000 + os.getpid() % 5000, 32_000, count):
        with contextlib.ExitStack() as held, contextlib.suppress(OSError):
            for port in range(low, low + count):
                held.enter_context(socket.socket()).bind(("127.0.0.1", port))
            return low
    raise AssertionError(f"no {count} free ports in a row")


def _own_ports() -> Iterator[int]:
    """The ports of one block after the other; from the first again once other processes have all the rest."""
    own: list[list[int]] = []
    for low in PORTS[::BLOCK]:
        if _claim(low):
            own.append([port for port in range(low, low + BLOCK) if port not in REFUSED_BY_BROWSERS])
            yield from own[-1]
    yield from itertools.cycle(itertools.chain(*own))


def _claim(low: int) -> bool:
    """Take a block of ports until this process ends, unless another one has it."""
    try:
        lock = os.open(Path(tempfile.gettempdir(), f"tfs-proxy-tests-ports-{low}"), os.O_RDWR | os.O_CREAT)
    except OSError:  # another user's
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        return False
    return True


_ports = _own_ports()
