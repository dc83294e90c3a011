"""The little of RFC 6455 that checks of bidirectional streams need: the handshake, a ping and its pong."""

import base64
import hashlib
import os

from tfs_proxy.conform.check import Violation
from tfs_proxy.conform.raw_http import NoReply, RawConnection

ACCEPT_KEY = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
"""RFC 6455, 1.3."""
PING_FRAME, PONG = 0x89, 0x0A
MASKED = 0x80
PAYLOAD = b"conform"
LENGTH_16, LENGTH_64 = 126, 127
MOST_FRAMES = 100


def open_websocket(connection: RawConnection, path: str, seconds: float) -> None:
    """Shake hands. Raises Violation unless the container agrees."""
    key = base64.b64encode(os.urandom(16))
    connection.send_bytes(
        f"GET {path} HTTP/1.1\r\nHost: model\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key.decode()}\r\n\r\n".encode()
    )
    head = connection.receive_until(b"\r\n\r\n", seconds)
    # RFC 6455 asks for SHA-1; it guards nothing here.
    accept = base64.b64encode(hashlib.sha1(key + ACCEPT_KEY, usedforsecurity=False).digest())
    if not head.startswith(b"HTTP/1.1 101") or accept not in head:
        line = head.partition(b"\r\n")[0].decode(errors="replace")
        raise Violation(expected="101 Switching Protocols with the right Sec-WebSocket-Accept", got=line)


def answers_ping(connection: RawConnection, seconds: float) -> bool:
    """Whether a ping comes back as a pong with the same payload; frames of messages are passed over."""
    mask = b"\x01\x02\x03\x04"
    masked = bytes(byte ^ mask[at % 4] for at, byte in enumerate(PAYLOAD))
    connection.send_bytes(bytes([PING_FRAME, MASKED | len(PAYLOAD)]) + mask + masked)
    try:
        frames = (_frame(connection, seconds) for _ in range(MOST_FRAMES))
        return any(frame == (PONG, PAYLOAD) for frame in frames)
    except NoReply:
        return False


def _frame(connection: RawConnection, seconds: float) -> tuple[int, bytes]:
    first, length = connection.receive_exactly(2, seconds)
    if length in {LENGTH_16, LENGTH_64}:
        length = int.from_bytes(connection.receive_exactly(2 if length == LENGTH_16 else 8, seconds), "big")
    return first & 0x0F, connection.receive_exactly(length, seconds)
