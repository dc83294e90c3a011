"""A container's parts as events, judged by botocore's own reader: how they end, and which error is the last."""

import asyncio
import json
from collections.abc import AsyncGenerator, Iterator
from contextlib import AsyncExitStack
from typing import Any

import botocore.session
import pytest
from botocore.eventstream import EventStream, EventStreamBuffer
from botocore.exceptions import EventStreamError
from botocore.parsers import create_parser

from tfs_proxy.tools.endpoint.stream import EventParts
from tfs_proxy.values.errors import UpstreamTimeout, UpstreamUnavailable


class RawStream:
    """What botocore's EventStream reads: an answer's body, in whatever pieces it arrives."""

    def __init__(self, pieces: list[bytes]) -> None:
        self._pieces = pieces

    def stream(self) -> Iterator[bytes]:
        yield from self._pieces


def read(pieces: list[bytes]) -> list[bytes]:
    """The payloads; raises EventStreamError as the client does."""
    service = botocore.session.get_session().get_service_model("sagemaker-runtime")
    shape: Any = service.operation_model("InvokeEndpointWithResponseStream").get_event_stream_output()
    parser: Any = create_parser("rest-json")
    events: Any = EventStream(RawStream(pieces), shape, parser._event_stream_parser, "op")
    return [event["PayloadPart"]["Bytes"] for event in events]


def events_of(failure: Exception) -> list[bytes]:
    """The events of two parts and a failure; all is closed at their end."""
    ended: list[str] = []

    async def parts() -> AsyncGenerator[bytes, None]:
        try:
            yield b"one"
            yield b"two"
            raise failure
        finally:
            ended.append("answer")

    async def scenario() -> list[bytes]:
        events = EventParts(parts(), 480.0)
        await events.await_first()
        held = AsyncExitStack()
        held.callback(ended.append, "instance")
        events.keep(held)
        found = [event async for event in events]
        await events.aclose()
        return found

    found = asyncio.run(scenario())
    assert ended == ["answer", "instance"]
    return found


@pytest.mark.parametrize(
    ("failure", "says", "code"),
    [
        (UpstreamTimeout("late"), "ModelStreamError.*within 480 seconds", "ModelInvocationTimeExceeded"),
        (UpstreamUnavailable("gone"), "ModelStreamError.*broke before the end", "StreamBroken"),
        (ZeroDivisionError("ours"), "InternalStreamFailure.*its log has the reason", None),
    ],
)
def test_an_error_is_the_last_event(failure: Exception, says: str, code: str | None) -> None:
    *parts, last = events_of(failure)
    assert read(parts) == [b"one", b"two"]
    with pytest.raises(EventStreamError, match=says):
        read([last])
    buffer = EventStreamBuffer()
    buffer.add_data(last)
    assert json.loads(next(buffer).payload).get("ErrorCode") == code
