"""InvokeEndpointWithResponseStream: what a container sends in chunks reaches the client as events."""

import logging
from contextlib import AsyncExitStack
from http import HTTPStatus
from typing import Self

from tfs_proxy.endpoint.calls import event_stream
from tfs_proxy.endpoint.calls.headers import client_headers, given_members
from tfs_proxy.endpoint.calls.invoke import picked, refuse_asynchronous
from tfs_proxy.endpoint.calls.passage import InvocationLimits, Passage
from tfs_proxy.endpoint.hosted_endpoint import HostedEndpoint
from tfs_proxy.endpoint.metrics import VariantMetrics
from tfs_proxy.errors import UpstreamError, UpstreamTimeout
from tfs_proxy.wire.http_messages import HttpRequest, Parts, StreamedResponse

log = logging.getLogger(__name__)

STREAM = "InvokeEndpointWithResponseStream"
STREAM_SECONDS = 480.0
"""How long a whole stream may take (docs/reference/sagemaker.md)."""

_FAILED = "The endpoint failed while it passed the stream on; its log has the reason."


class StreamInvoker:
    """Sends invocations to containers whose answers are passed on as they come, within ``seconds``."""

    def __init__(self, metrics: VariantMetrics, seconds: float = STREAM_SECONDS) -> None:
        self._metrics = metrics
        self._limits = InvocationLimits(seconds)

    async def invoke(self, endpoint: HostedEndpoint, request: HttpRequest) -> StreamedResponse:
        """The answer once its first part is there; raises AwsError for a container that gives none."""
        members = given_members(STREAM, request.headers)
        refuse_asynchronous(endpoint)
        group = endpoint.group_for(members)
        async with AsyncExitStack() as held:
            counted = held.enter_context(self._metrics.invocation(endpoint.name, group.plan.variant))
            instance = picked(endpoint, group)
            held.enter_context(instance.answering())
            passage = Passage(endpoint.name, instance, members, self._limits)
            answer = await passage.streamed(request.body, counted, held)
            events = EventParts(answer.parts, self._limits.seconds)
            with passage.translated(instance.containers[-1]):
                await events.await_first()
            events.keep(held.pop_all())
        headers = client_headers(STREAM, answer, group.plan.variant)
        return StreamedResponse(HTTPStatus.OK, events, {**headers, "Content-Type": event_stream.CONTENT_TYPE})


class EventParts:
    """A container's parts as events, the last of which may be an error; then what `keep` got is let go."""

    def __init__(self, parts: Parts, seconds: float) -> None:
        self._parts, self._seconds = parts, seconds
        self._first: bytes | None = None
        self._ended = False
        self._held = AsyncExitStack()

    async def await_first(self) -> None:
        """Wait for the first part; raises UpstreamError if there is none."""
        try:
            self._first = await anext(self._parts)
        except StopAsyncIteration:
            self._ended = True
        except UpstreamError:
            await self._parts.aclose()
            raise

    def keep(self, held: AsyncExitStack) -> None:
        """Hold this until the stream ends."""
        self._held = held

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        if self._ended:
            await self.aclose()
            raise StopAsyncIteration
        try:
            part, self._first = self._first, None
            return event_stream.payload_part(await anext(self._parts) if part is None else part)
        except StopAsyncIteration:
            await self.aclose()
            raise
        except Exception as error:  # noqa: BLE001 (the client learns of every one)
            self._ended = True
            return self._error_event(error)

    async def aclose(self) -> None:
        """Close the container's answer; idempotent."""
        self._ended = True
        async with self._held:
            await self._parts.aclose()

    def _error_event(self, error: Exception) -> bytes:
        if isinstance(error, UpstreamTimeout):
            text = f"The model did not end its answer within {self._seconds:g} seconds."
            return event_stream.model_stream_error(event_stream.TIME_EXCEEDED, text)
        if isinstance(error, UpstreamError):
            text = "The connection to the model broke before the end of its answer."
            return event_stream.model_stream_error(event_stream.STREAM_BROKEN, text)
        log.error("a stream failed", exc_info=error)
        return event_stream.internal_stream_failure(_FAILED)
