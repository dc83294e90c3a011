"""Closing a listening socket without losing connections that the kernel has accepted already.

Closing it resets the connections in its accept queue, whose clients may have sent their requests. So the
processes that accept go on until the queue is empty, and with it all that came before the stop (Linux;
elsewhere the socket is closed at once). No capability is needed: containers have none to filter packets.
"""

import asyncio
import socket
import struct
import sys
import time
from collections.abc import Callable, Sequence

LOOK_SECONDS = 0.01
QUIET_LOOKS = 10
"""The queue must be empty this many times in a row: a handshake may still be under way."""

MOST_SECONDS = 2.0
"""Clients that never pause keep a queue from being empty: it ends so long after it was shortest."""

_WAITING = struct.Struct("24xI")
"""In TCP_INFO of a listening socket: connections in its accept queue (``tcpi_unacked``)."""


async def accept_pending(listeners: Sequence[socket.socket], enough: Callable[[], bool]) -> None:
    """Return once the accept queues were empty for a while, grow no shorter, or ``enough`` says so."""
    if sys.platform != "linux":
        return
    shortest, since, quiet = sys.maxsize, time.monotonic(), 0
    while quiet < QUIET_LOOKS and not enough() and time.monotonic() < since + MOST_SECONDS:
        await asyncio.sleep(LOOK_SECONDS)
        waiting = sum(map(_waiting, listeners))
        quiet = 0 if waiting else quiet + 1
        if waiting < shortest:
            shortest, since = waiting, time.monotonic()


def _waiting(listener: socket.socket) -> int:
    tcp_info = listener.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _WAITING.size)
    return int(_WAITING.unpack(tcp_info)[0])
