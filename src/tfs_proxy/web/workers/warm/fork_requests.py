"""The supervisor's request for a process, as the process that forks it, or is to become it, receives it."""

import os
import socket
import struct
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Final

from msgspec import Struct

from tfs_proxy.forking.request import NUMBER, ForkRequest

MOST_DESCRIPTORS: Final = 253
"""In one message, as Linux allows."""

_PEER = struct.Struct("3i")


class Received(Struct, frozen=True):
    """A request with its descriptors, and the connection to the process ``supervisor``."""

    request: ForkRequest
    descriptors: Sequence[int]
    connection: socket.socket
    supervisor: int


def receive(connection: socket.socket, supervisor: int, held: ExitStack) -> Received | None:
    """Read one request; None if it is not whole, or not the supervisor's."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
    if _PEER.unpack(credentials)[0] != supervisor:
        return None
    try:
        head, descriptors, _, _ = socket.recv_fds(connection, NUMBER.size, MOST_DESCRIPTORS)
        for descriptor in descriptors:
            held.callback(os.close, descriptor)
        (left,) = NUMBER.unpack(head)
        text = b""
        while len(text) < left:
            part = connection.recv(left - len(text))
            if not part:
                return None
            text += part
        return Received(ForkRequest.from_bytes(text), descriptors, connection, supervisor)
    except (OSError, struct.error, ValueError):
        return None
