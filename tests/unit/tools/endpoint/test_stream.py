"""A container's parts as events: which error the last of them is."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack

import pytest

from tfs_proxy.tools.endpoint import stream as event_stream
from tfs_proxy.tools.endpoint.stream import EventParts, payload_part
from tfs_proxy.values.errors import UpstreamTimeout, UpstreamUnavailable

Ended = list[str]


def events_of(failure: Exception | None) -> tuple[list[bytes], Ended]:
    """The events of two parts and a failure, and what was closed at their end."""
    ended: Ended = []

    async def parts() -> AsyncGenerator[bytes, None]:
        try:
            yield b"one"
            yield b"two"
            if failure is not None:
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

    return asyncio.run(scenario()), ended


@pytest.mark.parametrize(
    ("failure", "last"),
    [
        (
            UpstreamTimeout("late"),
            lambda: event_stream.model_stream_error(
                event_stream.TIME_EXCEEDED, "The model did not end its answer within 480 seconds."
            ),
        ),
        (
            UpstreamUnavailable("gone"),
            lambda: event_stream.model_stream_error(
                event_stream.STREAM_BROKEN, "The connection to the model broke before the end of its answer."
            ),
        ),
        (
            ZeroDivisionError("ours"),
            lambda: event_stream.internal_stream_failure(
                "The endpoint failed while it passed the stream on; its log has the reason."
            ),
        ),
    ],
)
def test_an_error_is_the_last_event(failure: Exception, last: Callable[[], bytes]) -> None:
    events, ended = events_of(failure)
    assert events == [payload_part(b"one"), payload_part(b"two"), last()]
    assert ended == ["answer", "instance"]


def test_a_whole_answer_ends_without_a_word() -> None:
    events, ended = events_of(None)
    assert events == [payload_part(b"one"), payload_part(b"two")]
    assert ended == ["answer", "instance"]
