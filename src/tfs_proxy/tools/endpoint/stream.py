"""InvokeEndpointWithResponseStream: a container's chunks reach the client as events."""

import json
import logging
import struct
import zlib
from collections.abc import Mapping
from contextlib import AsyncExitStack
from http import HTTPStatus
from typing import Self

from tfs_proxy.tools.endpoint.aws_api import client_headers, given_members
from tfs_proxy.tools.endpoint.hosting import HostedEndpoint
from tfs_proxy.tools.endpoint.invoke import Invocation, InvocationLimits, picked, refuse_asynchronous
from tfs_proxy.values.errors import UpstreamError, UpstreamTimeout
from tfs_proxy.wire.http_messages import HttpRequest, Parts, StreamedResponse
from tfs_proxy.wire.media_types import BYTES, JSON

log = logging.getLogger(__name__)

CONTENT_TYPE = "application/vnd.amazon.eventstream"

TIME_EXCEEDED = "ModelInvocationTimeExceeded"
STREAM_BROKEN = "StreamBroken"
"""Error codes of ModelStreamError (botocore's model of InvokeEndpointWithResponseStream)."""

_TEXT = 7
"""Type of a header whose value is a string."""

STREAM = "InvokeEndpointWithResponseStream"

STREAM_SECONDS = 480.0
"""Limit for a whole stream (docs/reference/sagemaker.md)."""

_FAILED = "The endpoint failed while it passed the stream on; its log has the reason."


def payload_part(data: bytes) -> bytes:
    """A PayloadPart: some bytes of the container's answer."""
    return _message({":event-type": "PayloadPart", ":content-type": BYTES, ":message-type": "event"}, data)


def model_stream_error(code: str, text: str) -> bytes:
    """Tells that the container did not finish its answer; ``code`` is `TIME_EXCEEDED` or `STREAM_BROKEN`."""
    return _exception("ModelStreamError", {"Message": text, "ErrorCode": code})


def _exception(kind: str, members: Mapping[str, str]) -> bytes:
    headers = {":exception-type": kind, ":content-type": JSON, ":message-type": "exception"}
    return _message(headers, json.dumps(members).encode())


def _message(headers: Mapping[str, str], payload: bytes) -> bytes:
    """A message of the event stream, with string headers."""
    fields = b"".join(
        struct.pack(
            f">B{len(name)}sBH{len(value)}s", len(name), name.encode(), _TEXT, len(value), value.encode()
        )
        for name, value in headers.items()
    )
    content = struct.pack(">II", 16 + len(fields) + len(payload), len(fields))
    for part in (b"", fields + payload):
        content += part
        content += struct.pack(">I", zlib.crc32(content))
    return content


async def invoke_stream(endpoint: HostedEndpoint, request: HttpRequest) -> StreamedResponse:
    """The answer, passed on as it comes, once its first part is there. Raises AwsError if there is none."""
    members = given_members(STREAM, request.headers)
    refuse_asynchronous(endpoint)
    group = endpoint.group_for(members)
    async with AsyncExitStack() as held:
        instance = picked(endpoint, group, request.body)
        held.enter_context(instance.answering())
        invocation = Invocation(endpoint.name, instance, members, InvocationLimits(STREAM_SECONDS))
        async with invocation.streamed(request.body, held) as answer:
            events = EventParts(answer.parts, STREAM_SECONDS)
            await events.await_first()
        events.keep(held.pop_all())
    headers = client_headers(STREAM, answer, group.variant.name)
    return StreamedResponse(HTTPStatus.OK, events, {**headers, "Content-Type": CONTENT_TYPE})


class EventParts:
    """A container's parts as events, the last of which may be an error; then closes what `keep` got."""

    def __init__(self, parts: Parts, seconds: float) -> None:
        self._parts = parts
        self._seconds = seconds
        self._first: bytes | None = None
        self._ended = False
        self._held = AsyncExitStack()

    async def await_first(self) -> None:
        """Waits for the first part. Raises UpstreamError if there is none."""
        try:
            self._first = await anext(self._parts)
        except StopAsyncIteration:
            self._ended = True
        except UpstreamError:
            await self._parts.aclose()
            raise

    def keep(self, held: AsyncExitStack) -> None:
        self._held = held

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        if self._ended:
            await self.aclose()
            raise StopAsyncIteration
        try:
            part = self._first
            self._first = None
            return payload_part(await anext(self._parts) if part is None else part)
        except StopAsyncIteration:
            await self.aclose()
            raise
        except Exception as error:  # noqa: BLE001 (the client gets every error)
            self._ended = True
            return self._error_event(error)

    async def aclose(self) -> None:
        self._ended = True
        async with self._held:
            await self._parts.aclose()

    def _error_event(self, error: Exception) -> bytes:
        if isinstance(error, UpstreamTimeout):
            text = f"The model did not end its answer within {self._seconds:g} seconds."
            return model_stream_error(TIME_EXCEEDED, text)
        if isinstance(error, UpstreamError):
            text = "The connection to the model broke before the end of its answer."
            return model_stream_error(STREAM_BROKEN, text)
        log.error("a stream failed", exc_info=error)
        return _exception("InternalStreamFailure", {"Message": _FAILED})
