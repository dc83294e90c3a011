"""The encoder of application/vnd.amazon.eventstream, judged by botocore's own reader."""

import json
from collections.abc import Iterator
from typing import Any

import botocore.session
import pytest
from botocore.eventstream import EventStream, EventStreamBuffer
from botocore.exceptions import EventStreamError
from botocore.parsers import create_parser
from hypothesis import given
from hypothesis import strategies as st

from tfs_proxy.tools.endpoint import stream as event_stream

TEXTS = st.text(st.characters(codec="utf-8"))
NAMES = TEXTS.filter(lambda name: 0 < len(name.encode()) <= 255)
CONTENTS = st.tuples(st.dictionaries(NAMES, TEXTS, max_size=5), st.binary(max_size=2000))


class RawStream:
    """What botocore's EventStream reads: an answer's body, in whatever pieces it arrives."""

    def __init__(self, *pieces: bytes) -> None:
        self._pieces = pieces

    def stream(self) -> Iterator[bytes]:
        yield from self._pieces


def read(*pieces: bytes) -> list[Any]:
    service = botocore.session.get_session().get_service_model("sagemaker-runtime")
    shape: Any = service.operation_model("InvokeEndpointWithResponseStream").get_event_stream_output()
    parser: Any = create_parser("rest-json")
    return list(EventStream(RawStream(*pieces), shape, parser._event_stream_parser, "op"))


@given(st.lists(CONTENTS, max_size=4), st.integers(1, 97))
def test_botocore_reads_back_any_headers_and_payload_however_the_bytes_are_cut(
    messages: list[tuple[dict[str, str], bytes]], size: int
) -> None:
    data = b"".join(event_stream.message(headers, payload) for headers, payload in messages)
    buffer = EventStreamBuffer()
    found: list[tuple[Any, bytes]] = []
    for start in range(0, len(data), size):
        buffer.add_data(data[start : start + size])
        found += [(message.headers, message.payload) for message in buffer]
    assert found == messages


@pytest.mark.parametrize("code", [event_stream.TIME_EXCEEDED, event_stream.STREAM_BROKEN])
def test_an_error_of_the_model_is_raised_as_model_stream_error(code: str) -> None:
    error = event_stream.model_stream_error(code, "it broke")
    with pytest.raises(EventStreamError, match=r"ModelStreamError.*: it broke"):
        read(event_stream.payload_part(b"one"), error)
    buffer = EventStreamBuffer()
    buffer.add_data(error)
    assert json.loads(next(buffer).payload) == {"Message": "it broke", "ErrorCode": code}


def test_a_failure_of_the_endpoint_is_raised_as_internal_stream_failure() -> None:
    with pytest.raises(EventStreamError, match=r"InternalStreamFailure.*: sorry"):
        read(event_stream.internal_stream_failure("sorry"))


@pytest.mark.parametrize("headers", [{"": "x"}, {"n" * 256: "x"}, {"n": "x" * 32768}])
def test_headers_that_the_format_cannot_hold_are_refused(headers: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="header"):
        event_stream.message(headers, b"")
