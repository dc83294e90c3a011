"""One bidirectional stream: its connection, whose messages under way count as large bodies, and its end."""

import asyncio
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from http import HTTPStatus
from sys import getsizeof
from typing import Any, Final

from websockets.asyncio.server import Server, ServerConnection
from websockets.exceptions import ConnectionClosed
from websockets.frames import CloseCode, Frame, Opcode
from websockets.http11 import Response
from websockets.protocol import State
from websockets.server import ServerProtocol
from websockets.typing import StatusLike

from tfs_proxy.observe.logs.access import RequestLine, RequestLog
from tfs_proxy.observe.request_counts import FinishedRequest
from tfs_proxy.observe.request_record import RequestRecord
from tfs_proxy.serving.script.streams import Message, StreamRequest
from tfs_proxy.values.errors import Overloaded
from tfs_proxy.values.memory import MEGABYTE
from tfs_proxy.wire.error_body import error_body
from tfs_proxy.wire.header_names import CALLER
from tfs_proxy.wire.media_types import JSON
from tfs_proxy.worker.memory_ledger import LOOK_SECONDS, WAIT_SECONDS, MemoryLedger

FRAME_BYTES: Final = 300
"""Size of a message's own objects while it waits for the script."""

_OF_MESSAGES: Final = frozenset({Opcode.TEXT, Opcode.BINARY, Opcode.CONT})
NO_MEMORY_NOW: Final = "no memory now: TFS_PROXY_MAX_DECODED_TOTAL_MB limits all large messages together"


class StreamProtocol(ServerProtocol):
    """Protocol in which a close ends a message that is under way, and refusals are JSON."""

    def recv_frame(self, frame: Frame) -> None:
        if frame.opcode is Opcode.CLOSE:
            self.current_size = None
        super().recv_frame(frame)

    def reject(self, status: StatusLike, text: str) -> Response:
        body = error_body(text.strip())
        response = super().reject(status, body.decode())
        del response.headers["Content-Type"]
        response.headers["Content-Type"] = JSON
        if status == HTTPStatus.SERVICE_UNAVAILABLE:
            response.headers["Retry-After"] = "1"
        return response


class StreamConnection(ServerConnection):
    """Connection whose messages take at most the memory that ``ledger`` has, from 1 MB a stream on.

    A client whose next bytes would not fit has to wait, and after a while its stream is closed with 1013.
    Parts of a message are joined as they come, so that any number of them takes no more than the message.
    """

    ledger: MemoryLedger

    def __init__(self, protocol: ServerProtocol, server: Server, **options: Any) -> None:
        super().__init__(protocol, server, **options)
        protocol.__class__ = StreamProtocol
        self._kind, self._joined = Opcode.BINARY, bytearray()
        self._in_use = self._reserved = 0
        self._waiting: asyncio.Task[None] | None = None

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._count()
        if self.transport.get_write_buffer_size() > MEGABYTE:  # of pongs, which wait for no client
            self.transport.pause_reading()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._waiting is None and not self.recv_messages.paused:
            self.transport.resume_reading()

    def process_event(self, event: Any) -> None:
        """Pass on handshakes, control frames and whole messages."""
        if isinstance(event, Frame) and event.opcode in _OF_MESSAGES:
            if event.opcode is not Opcode.CONT:
                self._kind = event.opcode
            self._joined += event.data
            event.data = b""  # the library's parser keeps a frame until the next one comes
            if not event.fin:
                return
            event, self._joined = Frame(self._kind, self._joined), bytearray()
        super().process_event(event)

    def use(self, size: int) -> None:
        """Count the message that the script has from now on; none of 0 bytes."""
        self._in_use = size
        self._count()

    def release(self) -> None:
        """Give everything back at the end of the stream."""
        if self._waiting is not None:
            self._waiting.cancel()
        self.ledger.release(self._reserved)
        self._reserved = 0

    def _count(self) -> None:
        if self.protocol.state is not State.CONNECTING and not self._fits():
            self.transport.pause_reading()
            if self._waiting is None:
                self._waiting = self.loop.create_task(self._wait_for_memory())

    def _fits(self) -> bool:
        """True once the ledger has what the stream takes now, in whole MB."""
        queued = sum(len(frame.data) + FRAME_BYTES for frame in self.recv_messages.frames.queue)
        arriving = getsizeof(self.protocol.reader.buffer) + getsizeof(self._joined)
        more = (arriving + queued + self._in_use) // MEGABYTE * MEGABYTE - self._reserved
        try:
            if more > 0:
                self.ledger.reserve(more)
            elif more < 0:
                self.ledger.release(-more)
        except Overloaded:
            return False
        self._reserved += more
        return True

    async def _wait_for_memory(self) -> None:
        deadline = time.monotonic() + WAIT_SECONDS
        while not self._fits():
            if time.monotonic() > deadline:
                with suppress(ConnectionClosed):
                    async with self.send_context():
                        self.protocol.fail(CloseCode.TRY_AGAIN_LATER, NO_MEMORY_NOW)
                        self._joined.clear()
                        self._fits()  # at once, for the streams that still wait
                        self.transport.resume_reading()
                return
            await asyncio.sleep(LOOK_SECONDS)
        self._waiting = None
        if not self.recv_messages.paused:
            self.transport.resume_reading()


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
        record.hung_up = lambda: connection.state is not State.OPEN
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

    def find_outcome(self) -> None:
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
        caller = self.request.headers.get(CALLER.lower(), "")
        line = RequestLine(finished, record.request_id, record.model, caller=caller)
        access.show(line, PROCESS, os.getpid(), fields)


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
