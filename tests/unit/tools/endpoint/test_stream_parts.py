"""Events of a bidirectional stream as frames and back: botocore's reader judges those that go to the client."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from botocore.eventstream import EventStreamBuffer
from hypothesis import given
from hypothesis import strategies as st
from websockets.frames import Frame, Opcode

from tfs_proxy.tools.endpoint.stream import message
from tfs_proxy.tools.endpoint.stream_parts import ClientGone, ResponseEvents, request_frames
from tfs_proxy.values.errors import BadInput

EVENT = {":event-type": "PayloadPart", ":message-type": "event"}
SIGNED = {":chunk-signature": "not checked"}
TEXT, BINARY, CONT = Opcode.TEXT, Opcode.BINARY, Opcode.CONT


def part(data: bytes, **members: str) -> bytes:
    return message(SIGNED, message(EVENT | members, data))


def frames(*pieces: bytes, gone: bool = False) -> list[Frame]:
    """Frames of a body that comes in these pieces."""
    messages: list[dict[str, Any]] = [
        {"type": "http.request", "body": piece, "more_body": True} for piece in pieces
    ]
    messages.append({"type": "http.disconnect"} if gone else {"type": "http.request", "more_body": False})
    coming = iter(messages)

    async def receive() -> dict[str, Any]:
        return next(coming)

    async def scenario() -> list[Frame]:
        return [frame async for frame in request_frames(receive)]

    return asyncio.run(scenario())


@given(st.integers(1, 400))
def test_each_part_is_a_frame_however_the_body_is_cut(size: int) -> None:
    """PARTIAL clears FIN, what follows continues the message, and an empty signed event is the end."""
    body = b"".join(
        (
            part(b"a", DataType="UTF8"),
            part(b"b"),
            part(b"c", DataType="UTF8", CompletionState="PARTIAL"),
            part(b"", DataType="UTF8", CompletionState="PARTIAL", P="padding"),
            part(b"d", CompletionState="COMPLETE"),
            message(EVENT | {"DataType": "BINARY"}, b"unsigned"),
            message(SIGNED, b""),
            part(b"after the end"),
        )
    )
    assert frames(*(body[start : start + size] for start in range(0, len(body), size))) == [
        Frame(TEXT, b"a"),
        Frame(BINARY, b"b"),
        Frame(TEXT, b"c", fin=False),
        Frame(CONT, b"", fin=False),
        Frame(CONT, b"d"),
        Frame(BINARY, b"unsigned"),
    ]


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        (part(b"", DataType="JPEG"), "DataType is 'JPEG'; it must be one of UTF8, BINARY"),
        (part(b"", CompletionState="HALF"), "CompletionState is 'HALF'"),
        (message({":event-type": "Other"}, b""), "'Other' is not PayloadPart"),
        (b"no event at all, which is longer than a prelude", "is not application/vnd.amazon.eventstream"),
    ],
)
def test_what_is_no_part_is_refused(body: bytes, sentence: str) -> None:
    with pytest.raises(BadInput, match=sentence):
        frames(body)


def test_a_client_that_goes_is_told_from_one_that_ends() -> None:
    with pytest.raises(ClientGone):
        frames(part(b"a"), gone=True)
    assert frames() == []


def test_a_frame_is_an_event_of_its_message_s_type() -> None:
    sent: Sequence[tuple[Frame, str, str]] = (
        (Frame(TEXT, b"a", fin=False), "UTF8", "PARTIAL"),
        (Frame(CONT, b"b"), "UTF8", "COMPLETE"),
        (Frame(BINARY, b"c"), "BINARY", "COMPLETE"),
    )
    events, buffer = ResponseEvents(), EventStreamBuffer()
    for frame, data_type, state in sent:
        buffer.add_data(events.event(frame))
        (read,) = buffer
        headers: Any = read.headers
        assert (read.payload, headers["DataType"], headers["CompletionState"]) == (
            frame.data,
            data_type,
            state,
        )
        assert headers[":event-type"] == "PayloadPart"
