"""A server whose answers never end, for tests of the limits that clients have."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from support.running import LOOPBACK

PART = b"x" * 65_536
ENDLESS = {
    "chunks": (b"Transfer-Encoding: chunked\r\n\r\n", b"10000\r\n" + PART + b"\r\n"),
    "small chunks": (b"Transfer-Encoding: chunked\r\n\r\n", b"2\r\nxx\r\n" * 9_000),
    "one chunk": (b"Transfer-Encoding: chunked\r\n\r\nffffffffffff\r\n", PART),
    "a length": (b"Content-Length: 999999999999\r\n\r\n", PART),
    "no length": (b"\r\n", PART),
}
"""The end of the head, and what follows again and again, by the way in which an answer does not end."""


@contextmanager
def endless_server(way: str = "chunks") -> Iterator[int]:
    """Yields the port at which each request gets an answer without an end."""
    head, part = ENDLESS[way]
    listening = socket.create_server((LOOPBACK, 0))

    def answer(connection: socket.socket) -> None:
        with connection, suppress(OSError):
            connection.recv(65_536)
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n" + head)
            while True:
                connection.sendall(part)

    def accept() -> None:
        with suppress(OSError):
            while True:
                connection, _ = listening.accept()
                threading.Thread(target=answer, args=(connection,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield listening.getsockname()[1]
    finally:
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()
