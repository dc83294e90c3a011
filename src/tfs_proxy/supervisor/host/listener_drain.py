"""Closing a listening socket without losing connections that the kernel has accepted already.

Closing it resets the connections in its backlog, whose clients may have sent their requests. So the kernel
first drops new connections, and the process that accepts takes the backlog (Linux; elsewhere the socket is
closed at once).
"""

import asyncio
import ctypes
import logging
import socket
import struct
import sys
from collections.abc import Callable, Sequence

log = logging.getLogger(__name__)

LOOK_SECONDS = 0.01
QUIET_LOOKS = 10
"""The backlog must be empty this many times in a row: a handshake may still be under way."""

_SO_ATTACH_FILTER = 26
_FLAGS_BYTE, _SYN, _SYN_OR_ACK = 13, 0x02, 0x12
_DROP_SYN = (
    (0x30, 0, 0, _FLAGS_BYTE),  # load the byte with the TCP header's flags
    (0x54, 0, 0, _SYN_OR_ACK),  # keep these two
    (0x15, 0, 1, _SYN),  # unless only SYN is set, pass over the next line
    (0x06, 0, 0, 0),  # drop the packet
    (0x06, 0, 0, 0xFFFFFFFF),  # let it through
)
"""A classic BPF program: code, steps if true, steps if false, operand."""

_WAITING = struct.Struct("24xI")
"""In TCP_INFO of a listening socket: connections in the backlog (``tcpi_unacked``)."""


async def accept_pending(listeners: Sequence[socket.socket], enough: Callable[[], bool]) -> None:
    """Drop new connections; return once all in the backlog are accepted, or ``enough`` says so."""
    for listener in listeners:
        if not _drop_new_connections(listener):
            return
    quiet = 0
    while quiet < QUIET_LOOKS and not enough():
        await asyncio.sleep(LOOK_SECONDS)
        quiet = 0 if any(_waiting(listener) for listener in listeners) else quiet + 1


def _drop_new_connections(listener: socket.socket) -> bool:
    """Have the kernel drop SYN packets; the client sends them again, and finds the port closed."""
    if sys.platform != "linux":
        return False
    program = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *line) for line in _DROP_SYN))
    pointer = struct.pack("HL", len(_DROP_SYN), ctypes.addressof(program))
    try:
        listener.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, pointer)
    except OSError as error:
        log.debug("new connections can't be dropped before the stop: %s", error)
        return False
    return True


def _waiting(listener: socket.socket) -> int:
    tcp_info = listener.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _WAITING.size)
    return int(_WAITING.unpack(tcp_info)[0])
