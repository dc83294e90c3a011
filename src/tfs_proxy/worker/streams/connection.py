"""Connection of a stream, whose messages under way count as large bodies of requests do."""

import asyncio
import time
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

from tfs_proxy.values.errors import Overloaded
from tfs_proxy.values.memory import MEGABYTE
from tfs_proxy.wire.error_body import error_body
from tfs_proxy.wire.media_types import JSON
from tfs_proxy.worker.memory_ledger import LOOK_SECONDS, WAIT_SECONDS, MemoryLedger

FRAME_BYTES: Final = 300
"""Size of a message's own objects while it waits for the script."""

_OF_MESSAGES: Final = frozenset({Opcode.TEXT, Opcode.BINARY, Opcode.CONT})
NO_MEMORY: Final = "no memory now: TFS_PROXY_MAX_DECODED_TOTAL_MB limits all large messages together"


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
                        self.protocol.fail(CloseCode.TRY_AGAIN_LATER, NO_MEMORY)
                        self._joined.clear()
                        self._fits()  # at once, for the streams that still wait
                        self.transport.resume_reading()
                return
            await asyncio.sleep(LOOK_SECONDS)
        self._waiting = None
        if not self.recv_messages.paused:
            self.transport.resume_reading()
