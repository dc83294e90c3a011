"""A WebSocket to a container, frame by frame: each is exactly one part of the client's stream."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Final

from websockets.client import ClientProtocol
from websockets.exceptions import InvalidURI
from websockets.frames import Close, CloseCode, Frame, Opcode
from websockets.http11 import Response
from websockets.protocol import CLOSED, OPEN
from websockets.uri import parse_uri

from tfs_proxy.tools.endpoint.invoke import MOST_BYTES
from tfs_proxy.values.errors import BadInput, NotReached, UpstreamError, UpstreamRefused, UpstreamTimeout

PING_SECONDS: Final = 60.0
UNANSWERED_PINGS = 5
"""Pings without a pong after which SageMaker closes a stream (docs/reference/sagemaker.md)."""

CLOSE_SECONDS = 10.0
"""Limit for the container's answer to a close."""

DATA = frozenset({Opcode.TEXT, Opcode.BINARY, Opcode.CONT})
_READ_BYTES = 64 * 1024


class ContainerStream:
    """An open WebSocket over a connection: `open_stream` makes one."""

    def __init__(
        self, protocol: ClientProtocol, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._protocol, self._reader, self._writer = protocol, reader, writer
        self._events = self._received()
        self._unanswered = 0

    @property
    def closed(self) -> Close | None:
        """The container's close frame, ours if it broke the protocol; None if the connection just broke."""
        protocol = self._protocol
        return protocol.close_rcvd or (protocol.close_sent if protocol.parser_exc else None)

    async def handshake(self) -> None:
        """Raises UpstreamRefused for an answer that is not 101, UpstreamError if there is none."""
        self._protocol.send_request(self._protocol.connect())
        answer = await anext(self._events, None)
        if self._protocol.state is not OPEN and isinstance(answer, Response):
            raise UpstreamRefused(answer.status_code, bytes(answer.body or b""))
        if self._protocol.state is not OPEN:
            raise UpstreamError("the connection broke before the handshake was answered")

    async def frames(self) -> AsyncIterator[Frame]:
        """Frames of messages until the end of the stream; `closed` says then how it came."""
        async for frame in self._events:
            if isinstance(frame, Frame) and frame.opcode in DATA:
                yield frame
            elif isinstance(frame, Frame) and frame.opcode is Opcode.PONG:
                self._unanswered = 0

    async def send(self, frame: Frame) -> None:
        """Sends it once the container has read enough; does nothing if the stream is closed."""
        if self._protocol.state is OPEN:
            self._protocol.send_frame(frame)
            await self._flush()

    async def close(self, code: CloseCode) -> None:
        """Sends a close frame, unless one has been."""
        if self._protocol.state is OPEN:
            self._protocol.send_close(code)
            await self._flush()

    async def keep_alive(self) -> None:
        """Pings for ever. Raises UpstreamTimeout after five pings without a pong."""
        while self._unanswered < UNANSWERED_PINGS:
            await asyncio.sleep(PING_SECONDS)
            self._unanswered += 1
            if self._protocol.state is OPEN:
                self._protocol.send_ping(b"")
                await self._flush()
        raise UpstreamTimeout(f"{UNANSWERED_PINGS} pings had no pong")

    async def _received(self) -> AsyncIterator[object]:
        """Answers what the protocol answers by itself, such as pings."""
        while self._protocol.state is not CLOSED:
            await self._flush()
            data = await self._reader.read(_READ_BYTES)
            if data:
                self._protocol.receive_data(data)
            else:
                self._protocol.receive_eof()
            for event in self._protocol.events_received():
                yield event

    async def _flush(self) -> None:
        for data in self._protocol.data_to_send():
            if data:
                self._writer.write(data)
            else:  # the end: websockets asks for it once both closes are there
                self._writer.close()
        await self._writer.drain()


@contextlib.asynccontextmanager
async def open_stream(host: str, port: int, target: str, seconds: float) -> AsyncIterator[ContainerStream]:
    """A WebSocket to ``target``, a path with its query; the connection ends with the block.

    Raises BadInput for a target that can't be one, UpstreamRefused for an answer that is not 101, and
    UpstreamError if there is none within ``seconds``.
    """
    try:
        protocol = ClientProtocol(parse_uri(f"ws://{host}:{port}{target}"), max_size=(None, MOST_BYTES))
    except InvalidURI as error:
        raise BadInput(f"{target!r} can't be a path and a query: {error}") from error
    async with contextlib.AsyncExitStack() as held:
        try:
            async with asyncio.timeout(seconds):
                reader, writer = await asyncio.open_connection(host, port)
                held.callback(writer.close)
                stream = ContainerStream(protocol, reader, writer)
                await stream.handshake()
        except TimeoutError as error:
            raise UpstreamTimeout("no answer to the handshake") from error
        except OSError as error:
            raise NotReached(str(error)) from error
        yield stream
