"""A port of this machine that a container is told to listen on: a free one, or whether one is taken."""

import secrets
import socket
from contextlib import suppress

PORTS = range(20_000, 32_000)
"""multi-model-server takes none from 32767 on, and kernels give higher ones to outgoing connections."""

TRIES = 100
ANY = 0


def free_port() -> int:
    """A loopback port that nothing listens on at this moment: of `PORTS`, or any if those are taken."""
    for port in (*(secrets.choice(PORTS) for _ in range(TRIES)), ANY):
        with suppress(OSError), socket.socket() as holder:
            holder.bind(("127.0.0.1", port))
            return int(holder.getsockname()[1])
    raise OSError("no port is free on this machine")


def is_taken(port: int) -> bool:
    """Whether a program of this machine listens on a port, on loopback or on every address."""
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0
