"""The HTTP client for answers that are read as they come: one request on an asyncio connection of its own."""

import asyncio
import contextlib
from collections.abc import Iterator, Mapping
from typing import Self

import h11

from tfs_proxy.errors import NotReached, UpstreamTimeout, UpstreamUnavailable
from tfs_proxy.wire.connect import authority
from tfs_proxy.wire.error_body import connection_closed, not_answered, not_reached
from tfs_proxy.wire.http_messages import HttpRequest, StreamedResponse

CONNECT_SECONDS = 5.0
_READ_BYTES = 65536


async def request_stream(
    host: str, port: int, request: HttpRequest, seconds: float, server: str
) -> StreamedResponse:
    """Send a request; its answer as soon as the head is there, the parts of its body as they come.

    All of it has ``seconds``; ``server`` is the subject of the sentences in errors. Raises NotReached,
    UpstreamUnavailable and UpstreamTimeout, as do the parts. Whoever gets the answer closes its parts.
    """
    deadline = asyncio.get_running_loop().time() + seconds
    try:
        async with asyncio.timeout(min(CONNECT_SECONDS, seconds)):
            reader, writer = await asyncio.open_connection(host, port)
    except OSError as error:  # TimeoutError is one
        raise NotReached(not_reached(server)) from error
    parts = _ReceivedParts(reader, writer, server, seconds, deadline)
    try:
        head = await parts.exchange(request, {"Host": authority(host, port), **request.headers})
    except BaseException:
        await parts.aclose()
        raise
    fields = {name.decode("latin-1"): value.decode("latin-1") for name, value in head.headers}
    return StreamedResponse(head.status_code, parts, fields)


class _ReceivedParts:
    """The parts of one answer, on a connection that is closed after it."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        server: str,
        seconds: float,
        deadline: float,
    ) -> None:
        self._reader, self._writer = reader, writer
        self._server, self._seconds, self._deadline = server, seconds, deadline
        self._protocol = h11.Connection(h11.CLIENT)

    async def exchange(self, request: HttpRequest, headers: Mapping[str, str]) -> h11.Response:
        """Send the request, and read the head of its answer."""
        fields = {name: value for name, value in headers.items() if name.lower() != "content-length"}
        fields["Content-Length"] = str(len(request.body))
        head = h11.Request(method=request.method, target=request.path, headers=list(fields.items()))
        with self._translated():
            self._writer.write(self._protocol.send(head) or b"")
            self._writer.write(self._protocol.send(h11.Data(data=request.body)) or b"")
            self._writer.write(self._protocol.send(h11.EndOfMessage()) or b"")
        while not isinstance(event := await self._next_event(), h11.Response):
            if isinstance(event, h11.ConnectionClosed | h11.EndOfMessage):
                raise UpstreamUnavailable(connection_closed(self._server))
        return event

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        while not isinstance(event := await self._next_event(), h11.Data):
            if isinstance(event, h11.EndOfMessage | h11.ConnectionClosed):
                await self.aclose()
                raise StopAsyncIteration
        return bytes(event.data)

    async def aclose(self) -> None:
        """Close the connection; what the server still sends is lost."""
        self._writer.close()

    async def _next_event(self) -> object:
        with self._translated():
            while (event := self._protocol.next_event()) is h11.NEED_DATA:
                async with asyncio.timeout_at(self._deadline):
                    self._protocol.receive_data(await self._reader.read(_READ_BYTES))
        return event

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except TimeoutError as error:
            self._writer.close()
            raise UpstreamTimeout(not_answered(self._server, self._seconds)) from error
        except (OSError, h11.ProtocolError) as error:
            self._writer.close()
            raise UpstreamUnavailable(connection_closed(self._server)) from error
