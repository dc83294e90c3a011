"""One bidirectional stream: its connection, what it counts, and its end."""

import asyncio
import os
import time
from collections.abc import Mapping
from http import HTTPStatus
from typing import Final

from websockets.exceptions import ConnectionClosed
from websockets.frames import CloseCode

from tfs_proxy.observe.logs.access import RequestLine, RequestLog
from tfs_proxy.observe.request_counts import FinishedRequest
from tfs_proxy.observe.request_record import RequestRecord
from tfs_proxy.serving.script.streams import Message, StreamRequest
from tfs_proxy.worker.streams.connection import StreamConnection

PROCESS: Final = "streams"
MOST_REASON_BYTES: Final = 123
"""Longest reason of a close frame (RFC 6455, 5.5)."""

COMPLETED, SCRIPT_ERROR, HANGS = "completed", "script_error", "hangs"
IDLE, STOPPED, CLIENT_CLOSED, CLIENT_GONE = "idle", "stopped", "client_closed", "client_gone"
TOO_LARGE, INVALID, NO_MEMORY = "too_large", "invalid", "no_memory"
FAULTS: Final = frozenset({SCRIPT_ERROR, HANGS})
OUTCOMES: Final[Mapping[int, str]] = {
    CloseCode.MESSAGE_TOO_BIG: TOO_LARGE,
    CloseCode.TRY_AGAIN_LATER: NO_MEMORY,
    CloseCode.INVALID_DATA: INVALID,
    CloseCode.PROTOCOL_ERROR: INVALID,
    CloseCode.INTERNAL_ERROR: CLIENT_GONE,  # it answered no ping
}
"""Outcomes of the codes with which the library itself closes a connection."""


class OpenStream:
    """A stream from its handshake to its end, with ``record`` of the request that opened it."""

    def __init__(self, connection: StreamConnection, request: StreamRequest, record: RequestRecord) -> None:
        self.connection, self.request, self.record = connection, request, record
        self.messages_in = self.messages_out = 0
        self.outcome = ""
        self._moved_at = time.monotonic()

    async def receive(self) -> Message | None:
        """Wait for the next message, whose parts are joined; None at the end."""
        self.connection.use(0)
        try:
            message = await self.connection.recv()
        except ConnectionClosed:
            return None
        size = _size(message)
        self.connection.use(size)
        self.messages_in += 1
        self.record.bytes_in += size
        self._moved_at = time.monotonic()
        return message

    async def send(self, message: Message) -> bool:
        """Send a message once the client has taken enough of those before; False at the end."""
        try:
            await self.connection.send(message)
        except ConnectionClosed:
            return False
        self.messages_out += 1
        self.record.bytes_out += _size(message)
        self._moved_at = time.monotonic()
        return True

    async def until_idle(self, seconds: float) -> None:
        """Return once there has been no message either way for so long."""
        while (left := self._moved_at + seconds - time.monotonic()) > 0:  # noqa: ASYNC110 - messages set no event
            await asyncio.sleep(left)

    async def close(self, outcome: str, code: CloseCode, reason: str = "") -> None:
        """Close the connection; the first outcome stands."""
        self.outcome = self.outcome or outcome
        await self.connection.close(code, shortened(reason))

    def end(self) -> None:
        """Find the outcome of a connection that has ended, if it was not we who closed it."""
        closed = self.connection.protocol.close_exc
        if closed.sent is not None and not closed.rcvd_then_sent:
            self.outcome = self.outcome or OUTCOMES.get(closed.sent.code, COMPLETED)
        self.outcome = self.outcome or (CLIENT_GONE if closed.rcvd is None else CLIENT_CLOSED)

    def log(self, access: RequestLog) -> None:
        """Write its line, if the access log wants one."""
        record, closed = self.record, self.connection.protocol.close_exc
        frame = closed.rcvd if closed.sent is None or closed.rcvd_then_sent else closed.sent
        is_fault = self.outcome in FAULTS
        status = HTTPStatus.INTERNAL_SERVER_ERROR if is_fault else HTTPStatus.SWITCHING_PROTOCOLS
        finished = FinishedRequest(
            "GET", status, time.perf_counter() - record.began, record.target, reason=record.reason
        )
        fields = {
            "status": int(HTTPStatus.SWITCHING_PROTOCOLS),
            "outcome": self.outcome,
            "close_code": int(CloseCode.ABNORMAL_CLOSURE if frame is None else frame.code),
            "messages_in": self.messages_in,
            "messages_out": self.messages_out,
            "bytes_in": record.bytes_in,
            "bytes_out": record.bytes_out,
        }
        access.show(RequestLine(finished, record.request_id, record.model), PROCESS, os.getpid(), fields)


class ScriptEnd:
    """Messages of a stream for the script, whose event loop is not that of the connection."""

    def __init__(self, stream: OpenStream, loop: asyncio.AbstractEventLoop) -> None:
        self._stream, self._loop = stream, loop

    async def next(self) -> Message | None:
        received = asyncio.run_coroutine_threadsafe(self._stream.receive(), self._loop)
        return await asyncio.wrap_future(received)

    async def send(self, message: Message) -> bool:
        sent = asyncio.run_coroutine_threadsafe(self._stream.send(message), self._loop)
        return await asyncio.wrap_future(sent)


def shortened(reason: str) -> str:
    """As much of a sentence as a close frame may carry."""
    return reason.encode()[:MOST_REASON_BYTES].decode(errors="ignore")


def _size(message: Message) -> int:
    return len(message.encode()) if isinstance(message, str) else len(message)
