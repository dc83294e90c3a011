"""One call of a client: its message as it arrives, and what its handler may ask while it runs."""

import asyncio
import socket
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Protocol

from msgspec import Struct

from tfs_proxy.wire.grpc_server.arriving_message import ArrivingMessage
from tfs_proxy.wire.grpc_server.statuses import Status
from tfs_proxy.wire.http2.messages import OutgoingMessage
from tfs_proxy.wire.protobuf_writer import Piece


class Reservation(Protocol):
    """Memory that a large message takes while it arrives, out of that of all."""

    @property
    def held(self) -> int:
        """The bytes that it has."""

    def try_ahead(self, size_bytes: int) -> bool:
        """Take more; whether there is room."""

    async def reserve_ahead(self, size_bytes: int) -> None:
        """Wait for more; may raise."""

    def keep_ahead(self, size_bytes: int) -> None:
        """Give back all beyond ``size_bytes``."""

    def close(self) -> None:
        """Give everything back; idempotent."""


class Method(Struct, frozen=True):
    """What answers the calls of one method; exactly one of ``run`` and ``stream`` is there.

    ``run`` and ``stream`` are called on a thread that may wait; a stream returns at once, and sends
    message by message, None at the end. Before ``run`` comes ``at_once``, on the event loop's thread: it
    answers what takes next to no time, and returns None for the rest. They may raise.
    """

    name: str
    run: "Callable[[Piece, Call], bytes] | None" = None
    at_once: "Callable[[Piece], bytes | None] | None" = None
    stream: "Callable[[Piece, Call, Callable[[bytes | None], None]], None] | None" = None


class Call:
    """A stream of HTTP/2 from its headers to its end; fields are of the event loop's thread alone."""

    __slots__ = (
        "_callbacks",
        "_lock",
        "_peer",
        "began",
        "encoding",
        "end_status",
        "granting",
        "incoming",
        "is_abandoned",
        "is_half_closed",
        "is_over",
        "is_queued",
        "method",
        "outgoing",
        "receive_window",
        "reservation",
        "running",
        "send_window",
        "since",
        "stream",
        "timer",
        "trailers",
    )

    def __init__(self, stream: int, peer: str, since: float) -> None:
        self.stream = stream
        self.method: Method | None = None
        self.encoding = ""
        self.incoming = ArrivingMessage()
        self.outgoing: deque[OutgoingMessage] | None = None
        self.trailers: bytes | None = None
        self.end_status: Status | None = None
        self.reservation: Reservation | None = None
        self.running: Future[Any] | None = None
        self.granting: asyncio.Task[None] | None = None
        self.timer: asyncio.TimerHandle | None = None
        self.since = since
        self.send_window = self.receive_window = 0
        self.began = self.is_queued = False
        self.is_half_closed = self.is_over = self.is_abandoned = False
        self._peer = peer
        self._callbacks: list[Callable[[], None]] = []
        self._lock = threading.Lock()

    def peer(self) -> str:
        """Who calls, as gRPC writes it: ``unix:``, or ``ipv4:`` with address and port."""
        return self._peer

    def is_active(self) -> bool:
        """Whether the client still waits; from any thread."""
        return not self.is_over

    def add_callback(self, callback: Callable[[], None]) -> bool:
        """Have it called once the call is over; False if it is already. From any thread."""
        with self._lock:
            if self.is_over:
                return False
            self._callbacks.append(callback)
            return True

    def set_status(self, status: Status) -> None:
        """What a stream ends with; from the thread that ends it."""
        self.end_status = status

    def end(self) -> None:
        """Let go of everything: the client has its answer, or no longer wants one. Idempotent."""
        with self._lock:
            if self.is_over:
                return
            self.is_over = True
            callbacks, self._callbacks = self._callbacks, []
        self.incoming = _NOTHING
        self.outgoing = None
        if self.timer is not None:
            self.timer.cancel()
        if self.granting is not None:
            self.granting.cancel()
        # A thread that has begun gives the memory back itself.
        if (self.running is None or self.running.cancel()) and self.reservation is not None:
            self.reservation.close()
        for callback in callbacks:
            callback()


_NOTHING = ArrivingMessage()


def peer_of(transport: asyncio.BaseTransport) -> str:
    """Who is at the other end, as gRPC writes it; TCP looks from time to time whether it still is."""
    connected = transport.get_extra_info("socket")
    if connected.family == socket.AF_UNIX:
        return "unix:"
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    host, port = transport.get_extra_info("peername")[:2]
    return f"ipv6:[{host}]:{port}" if connected.family == socket.AF_INET6 else f"ipv4:{host}:{port}"
