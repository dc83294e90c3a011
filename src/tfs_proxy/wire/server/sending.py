"""How a connection sends what is longer than one piece: waits for the client, and answers that still come."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from http import HTTPStatus

import h11

from tfs_proxy.wire.http_messages import Parts, StreamedResponse
from tfs_proxy.wire.server import bounds

log = logging.getLogger(__name__)

LOOK_SECONDS = 0.5
"""Between two looks whether the client of a stream is still there."""


async def taken(writer: asyncio.StreamWriter) -> None:
    """Wait until the client has taken the answer; raises TimeoutError if it takes nothing for long."""
    left = None
    while True:
        try:
            async with asyncio.timeout(bounds.SEND_SECONDS):
                return await writer.drain()
        except TimeoutError:
            before, left = left, writer.transport.get_write_buffer_size()
            if before is not None and left >= before:
                writer.transport.abort()
                raise


async def send_stream(
    protocol: h11.Connection,
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    response: StreamedResponse,
) -> None:
    """Send every part as soon as it is there; a client sees by the broken connection that some are missing.

    Raises OSError and TimeoutError if the client has gone, which ``reader`` tells between two parts.
    """
    reason = HTTPStatus(response.status).phrase.encode()
    head = h11.Response(status_code=response.status, headers=list(response.headers.items()), reason=reason)
    async with contextlib.aclosing(response.parts):
        writer.write(protocol.send(head) or b"")
        try:
            async for part in _while_there(response.parts, reader):
                writer.write(protocol.send(h11.Data(data=part)) or b"")
                await taken(writer)
        except OSError:
            raise
        except Exception:
            log.exception("an answer breaks off")
            writer.transport.abort()
            raise ConnectionAbortedError from None
        writer.write(protocol.send(h11.EndOfMessage()) or b"")
        await taken(writer)


async def _while_there(parts: Parts, reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    """The parts; raises ConnectionAbortedError if the client ends the connection before one comes."""
    while True:
        coming = asyncio.ensure_future(anext(parts))
        try:
            while not coming.done():
                await asyncio.wait({coming}, timeout=LOOK_SECONDS)
                if not coming.done() and reader.at_eof():
                    raise ConnectionAbortedError
        finally:
            if coming.cancel():
                await asyncio.wait({coming})
        try:
            yield coming.result()
        except StopAsyncIteration:
            return
