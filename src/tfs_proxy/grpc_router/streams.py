"""What clients send in streams, which the end of the router ends, too."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from grpc import aio


async def messages_until(stopping: asyncio.Event, context: Any) -> AsyncIterator[Any]:
    """Give the messages of a call, until the client ends or the router is ``stopping``."""
    stop = asyncio.create_task(stopping.wait())
    try:
        while True:
            reading = asyncio.ensure_future(context.read())
            await asyncio.wait({reading, stop}, return_when=asyncio.FIRST_COMPLETED)
            if not reading.done():
                reading.cancel()
                return
            message = reading.result()
            if message is aio.EOF:
                return
            yield message
    finally:
        stop.cancel()
