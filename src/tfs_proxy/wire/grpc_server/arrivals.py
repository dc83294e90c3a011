"""The messages of one connection that are still arriving: their memory, and how long they may take."""

import asyncio
from collections.abc import Callable

from tfs_proxy.memory import RESERVED_FROM_BYTES
from tfs_proxy.wire.grpc_codes import GrpcCode
from tfs_proxy.wire.grpc_server.calls import Call, Reservation
from tfs_proxy.wire.grpc_server.sending import AnswerSender
from tfs_proxy.wire.grpc_server.statuses import Status
from tfs_proxy.wire.http2 import frames
from tfs_proxy.wire.server.bounds import body_deadline

_LOOK_SECONDS = 2.0
"""Shorter than others wait for memory, and longer than 100 MB take on any local network."""
WINDOW_BYTES = RESERVED_FROM_BYTES + (1 << 14)
"""What a call may send unasked: all of a message that nothing is reserved for, and what is around it."""
_FULL = Status(
    GrpcCode.UNAVAILABLE, "Other large requests are using the memory that this one needs: try again."
)
_SLOW = Status(GrpcCode.DEADLINE_EXCEEDED, "The message did not arrive in time.")


class Arrivals:
    """Lets the client send large messages once there is memory for them, and gives up slow ones.

    All that is announced is reserved as long as it comes at once; then only what has come, so that messages
    that stall keep no others waiting.
    """

    def __init__(
        self,
        sender: AnswerSender,
        reserve: Callable[[], Reservation],
        refuse: Callable[[str, BaseException], Status],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._sender = sender
        self._reserve = reserve
        self._refuse = refuse
        self._loop = loop
        self._seen: dict[Call, tuple[int, float]] = {}
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, call: Call) -> None:
        """Wait for a call's message."""
        self._seen[call] = (0, call.since)
        if self._timer is None:
            self._timer = self._loop.call_later(_LOOK_SECONDS, self._look)

    def end(self, call: Call) -> None:
        """Wait no longer; idempotent."""
        self._seen.pop(call, None)

    def close(self) -> None:
        """Wait for nothing."""
        self._seen.clear()
        if self._timer is not None:
            self._timer.cancel()

    def check_size(self, call: Call) -> None:
        """Reserve memory for a message that turns out to be large, and let the client send the rest of it."""
        incoming = call.incoming
        if incoming.length < RESERVED_FROM_BYTES or call.reservation is not None or not incoming.wants_more:
            return
        call.reservation = self._reserve()
        if call.reservation.try_ahead(incoming.length):
            self._grant(call)
        else:
            call.granting = self._loop.create_task(self._grant_later(call, call.reservation))

    def _grant(self, call: Call) -> None:
        missing = call.incoming.length - call.incoming.received - call.receive_window
        if missing > 0:
            call.receive_window += missing
            self._sender.control(frames.window_update(call.stream, missing))

    async def _grant_later(self, call: Call, reservation: Reservation) -> None:
        try:
            await reservation.reserve_ahead(call.incoming.length)
        except Exception as error:  # noqa: BLE001 (the status says it)
            name = call.method.name if call.method is not None else ""
            self._sender.refuse(call, self._refuse(name, error))
        else:
            self._grant(call)

    def _look(self) -> None:
        """See to those that take long."""
        now = self._loop.time()
        for call in list(self._seen):
            if now - call.since >= _LOOK_SECONDS:
                self._look_at(call, now)
        self._timer = self._loop.call_later(_LOOK_SECONDS, self._look) if self._seen else None

    def _look_at(self, call: Call, now: float) -> None:
        received = call.incoming.received
        seen, last_byte = self._seen[call]
        if received != seen:
            last_byte = now
            self._seen[call] = (received, now)
        if now > body_deadline(call.since, last_byte, received):
            self._sender.refuse(call, _SLOW)
        elif call.reservation is not None and not _keeps_up(call.reservation, received):
            self._sender.refuse(call, _FULL)


def _keeps_up(reservation: Reservation, received: int) -> bool:
    """Reserve what has come, and no more; whether there is room."""
    if received > reservation.held:
        return reservation.try_ahead(received - reservation.held)
    reservation.keep_ahead(received)
    return True
