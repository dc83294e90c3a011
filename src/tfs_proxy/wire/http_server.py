"""HTTP/1.1 on asyncio streams: a small server for the supervisor's door, a client for status calls.

h11 does the protocol; this module moves bytes and keeps deadlines.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from http import HTTPStatus

import h11

CHUNK_BYTES = 65536
IDLE_SECONDS = 75.0
REQUEST_SECONDS = 10.0
DISCARD_BYTES = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Reply:
    """Status, body, and whether the connection ends with it; ``headers`` are those beside the type."""

    status: int
    body: bytes = b""
    close: bool = False
    allow: str = ""
    content_type: str = "application/json"
    headers: Sequence[tuple[str, str]] = ()

    @classmethod
    def error(cls, status: int, reason: str, *, close: bool = False, allow: str = "") -> "Reply":
        """The one form of every error: ``{"error": reason}``; ``allow`` goes with a 405."""
        return cls(status, json.dumps({"error": reason}).encode(), close, allow)


Answer = Callable[[str, str], Awaitable[Reply]]
"""Method and path of a request -> its reply."""


async def serve_connection(
    answer: Answer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """Answer every request of one connection, then close it."""
    connection = h11.Connection(h11.SERVER)
    try:
        while await _serve_request(answer, connection, reader, writer):
            connection.start_next_cycle()
    except (OSError, TimeoutError, h11.LocalProtocolError):
        pass
    finally:
        writer.close()


async def _serve_request(
    answer: Answer, connection: h11.Connection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> bool:
    """Read and answer one request; whether the connection can carry another."""
    try:
        event = await next_event(connection, reader, IDLE_SECONDS)
        if not isinstance(event, h11.Request):
            return False
        method, path = event.method.decode("ascii"), event.target.decode("ascii", "replace").partition("?")[0]
        await _discard_body(connection, reader)
        reply = await answer(method, path)
    except h11.RemoteProtocolError as error:
        method, reply = "GET", refusal(error.error_status_hint)
    await send(connection, writer, method, reply)
    return not reply.close and connection.our_state is h11.DONE and connection.their_state is h11.DONE


def refusal(status: int) -> Reply:
    """What h11 refuses, without a word of the client's text."""
    return Reply.error(status, f"refused: {HTTPStatus(status).phrase.lower()}", close=True)


async def _discard_body(connection: h11.Connection, reader: asyncio.StreamReader) -> None:
    """Read the body away, so that the client gets to read the answer; a long one is cut off."""
    discarded = 0
    while connection.their_state is h11.SEND_BODY and discarded < DISCARD_BYTES:
        event = await next_event(connection, reader, REQUEST_SECONDS)
        if isinstance(event, h11.Data):
            discarded += len(event.data)


async def next_event(
    connection: h11.Connection, reader: asyncio.StreamReader, timeout_seconds: float
) -> object:
    """What the peer says next; raises TimeoutError where it is silent for so long."""
    while True:
        event = connection.next_event()
        if event is not h11.NEED_DATA:
            return event
        async with asyncio.timeout(timeout_seconds):
            received = await reader.read(CHUNK_BYTES)
        connection.receive_data(received)


async def send(connection: h11.Connection, writer: asyncio.StreamWriter, method: str, reply: Reply) -> None:
    """Write one whole answer to a request of ``method``."""
    headers = [("Content-Length", str(len(reply.body))), *reply.headers]
    if reply.body:
        headers.append(("Content-Type", reply.content_type))
    if reply.allow:
        headers.append(("Allow", reply.allow))
    if reply.close or connection.their_state is not h11.DONE:
        headers.append(("Connection", "close"))
    reason = HTTPStatus(reply.status).phrase.encode()
    parts = [connection.send(h11.Response(status_code=reply.status, headers=headers, reason=reason))]
    if method != "HEAD":
        parts.append(connection.send(h11.Data(data=reply.body)))
    parts.append(connection.send(h11.EndOfMessage()))
    # PERF: in one piece; the kernel would hold a second one back until the client has acknowledged the first.
    writer.write(b"".join(part for part in parts if part))
    await writer.drain()


async def get(host: str, port: int, path: str, timeout_seconds: float) -> Reply:
    """GET ``path`` once; raises OSError or TimeoutError where no whole answer comes."""
    async with asyncio.timeout(timeout_seconds):
        reader, writer = await asyncio.open_connection(host, port)
        try:
            return await _exchange(reader, writer, host, path)
        except h11.RemoteProtocolError as error:
            raise ConnectionResetError(str(error)) from error
        finally:
            writer.close()


async def _exchange(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str, path: str
) -> Reply:
    connection = h11.Connection(h11.CLIENT)
    headers = [("Host", host), ("Connection", "close")]
    writer.write(connection.send(h11.Request(method="GET", target=path, headers=headers)) or b"")
    writer.write(connection.send(h11.EndOfMessage()) or b"")
    status, body = 0, bytearray()
    while True:
        match connection.next_event():
            case h11.NEED_DATA:
                connection.receive_data(await reader.read(CHUNK_BYTES))
            case h11.Response() as response:
                status = response.status_code
            case h11.Data() as data:
                body += data.data
            case h11.EndOfMessage():
                return Reply(status, bytes(body))
            case event:
                raise ConnectionResetError(f"no answer: {event}")
