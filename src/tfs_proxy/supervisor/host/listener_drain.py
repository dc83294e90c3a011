"""The end of a listening socket: no more connections, and none lost that the kernel has accepted already.

Closing a socket resets the connections that nobody has taken from it yet, whose clients may have sent their
requests. So the kernel first refuses new ones, and whoever accepts takes the rest (Linux; a kernel that can't
do this closes at once).
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
"""How often in a row nothing must wait: a handshake under way takes the network's time."""

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
"""In TCP_INFO of a listening socket: connections that nobody has accepted (``tcpi_unacked``)."""


async def accept_pending(listeners: Sequence[socket.socket], enough: Callable[[], bool]) -> None:
    """Let nobody else in; return once all who are in have been accepted, or ``enough`` says so."""
    for each in listeners:
        if not _shut(each):
            return
    quiet = 0
    while quiet < QUIET_LOOKS and not enough():
        await asyncio.sleep(LOOK_SECONDS)
        quiet = 0 if any(_waiting(each) for each in listeners) else quiet + 1


def _shut(listener: socket.socket) -> bool:
    """Have the kernel drop what begins a connection; the client tries again, and finds the port closed."""
    if sys.platform != "linux":
        return False
    program = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *line) for line in _DROP_SYN))
    pointer = struct.pack("HL", len(_DROP_SYN), ctypes.addressof(program))
    try:
        listener.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, pointer)
    except OSError as error:
        log.debug("new connections can't be refused ahead of the stop: %s", error)
        return False
    return True


def _waiting(listener: socket.socket) -> int:
    told = listener.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _WAITING.size)
    return int(_WAITING.unpack(told)[0])
