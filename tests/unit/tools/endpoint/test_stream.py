"""A container's parts as events, read by botocore: which error is the last, and that all is closed then."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack

import pytest
from botocore.eventstream import EventStreamBuffer

from tfs_proxy.tools.endpoint.stream import EventParts
from tfs_proxy.values.errors import UpstreamTimeout, UpstreamUnavailable


def events_of(failure: Exception) -> bytes:
    """The events of two parts and a failure; all is closed at their end."""
    ended: list[str] = []

    async def parts() -> AsyncGenerator[bytes, None]:
        try:
            yield b"one"
            yield b"two"
            raise failure
        finally:
            ended.append("answer")

    async def scenario() -> bytes:
        events = EventParts(parts(), 480.0)
        await events.await_first()
        held = AsyncExitStack()
        held.callback(ended.append, "instance")
        events.keep(held)
        found = [event async for event in events]
        await events.aclose()
        return b"".join(found)

    found = asyncio.run(scenario())
    assert ended == ["answer", "instance"]
    return found


@pytest.mark.parametrize(
    ("failure", "kind", "code", "says"),
    [
        (UpstreamTimeout("late"), "ModelStreamError", "ModelInvocationTimeExceeded", "within 480 seconds"),
        (UpstreamUnavailable("gone"), "ModelStreamError", "StreamBroken", "broke before the end"),
        (ZeroDivisionError("ours"), "InternalStreamFailure", None, "its log has the reason"),
    ],
)
def test_an_error_is_the_last_event(failure: Exception, kind: str, code: str | None, says: str) -> None:
    buffer = EventStreamBuffer()
    buffer.add_data(events_of(failure))
    *parts, last = buffer

    assert [part.payload for part in parts] == [b"one", b"two"]
    error = json.loads(last.payload)
    found = last.headers[":exception-type"]  # type: ignore[index]  # the stubs have a number
    assert (found, error.get("ErrorCode")) == (kind, code)
    assert says in error["Message"]
