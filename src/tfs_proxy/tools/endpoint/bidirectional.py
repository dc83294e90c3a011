"""InvokeEndpointWithBidirectionalStream: events with the client, a WebSocket with the container."""

import asyncio
import contextlib
import logging
import re
import uuid
from collections.abc import Iterable, Mapping
from contextlib import AsyncExitStack
from http import HTTPStatus

from websockets.frames import CloseCode

from tfs_proxy.tools.endpoint.aws_api import (
    NOT_READY,
    REFUSED,
    UNAVAILABLE,
    AwsError,
    answer_to,
    model_error,
    refused,
)
from tfs_proxy.tools.endpoint.container_stream import CLOSE_SECONDS, ContainerStream, open_stream
from tfs_proxy.tools.endpoint.hosting import Hosting
from tfs_proxy.tools.endpoint.invoke import (
    InvocationLimits,
    Passage,
    chosen_containers,
    picked,
    refuse_asynchronous,
)
from tfs_proxy.tools.endpoint.metrics import VariantMetrics
from tfs_proxy.tools.endpoint.stream import (
    CONTENT_TYPE,
    STREAM_BROKEN,
    error_event,
    internal_stream_failure,
    model_stream_error,
)
from tfs_proxy.tools.endpoint.stream_parts import ClientGone, ResponseEvents, request_frames
from tfs_proxy.values.errors import BadInput, UpstreamError, UpstreamRefused, UpstreamTimeout
from tfs_proxy.wire.http_messages import HttpResponse
from tfs_proxy.wire.http_server import Message, Receive, Send

log = logging.getLogger(__name__)

PATH = "invocations-bidirectional-stream"
_CALL = re.compile(rf"/endpoints/([^/]+)/{PATH}")
_MEMBERS = {
    b"x-amzn-sagemaker-target-variant": "TargetVariant",
    b"x-amzn-sagemaker-model-invocation-path": "ModelInvocationPath",
    b"x-amzn-sagemaker-model-query-string": "ModelQueryString",
}
"""Members by their headers: botocore has no model of this service."""

_VARIANT, _REQUEST_ID = "x-amzn-invoked-production-variant", "x-amzn-requestid"
INVALID, INTERNAL, BUSY = "InputValidationError", "InternalServerError", "ServiceUnavailableError"
_CODES = {REFUSED: INVALID, NOT_READY: BUSY, UNAVAILABLE: BUSY}
_STATUSES = {INTERNAL: HTTPStatus.INTERNAL_SERVER_ERROR, BUSY: HTTPStatus.SERVICE_UNAVAILABLE}
OPEN_SECONDS = 60.0
_STOPS = "The endpoint stops."
_FAILED = "The endpoint failed while it passed the stream on; its log has the reason."


class Stopping(Exception):
    """The endpoint stops."""


class BidirectionalStreams:
    """The ASGI application for these calls; `stop` ends all streams."""

    def __init__(self, hosting: Hosting, metrics: VariantMetrics) -> None:
        self._hosting, self._metrics = hosting, metrics
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        self._stopping.set()

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        try:
            await self._call(scope, receive, send)
        except AwsError as error:
            await _answer(send, _in_its_terms(error))
        except ConnectionError as error:
            log.info("a client of a stream has gone: %s", error)
        except Exception:
            log.exception("a stream failed")
            await _answer(send, _in_its_terms(AwsError(INTERNAL, _FAILED)))

    async def _call(self, scope: Message, receive: Receive, send: Send) -> None:
        """One stream from its handshake to its end. Raises AwsError only before anything has been sent."""
        match = _CALL.fullmatch(scope["path"])
        if match is None or scope["method"] != "POST":
            raise AwsError("404", f"{scope['method']} {scope['path']} is not POST /endpoints/NAME/{PATH}.")
        members = {_MEMBERS[key]: value.decode() for key, value in scope["headers"] if key in _MEMBERS}
        endpoint = self._hosting.known(match[1])
        refuse_asynchronous(endpoint)
        group = endpoint.group_for(members)
        async with AsyncExitStack() as held:
            counted = held.enter_context(self._metrics.invocation(endpoint.name, group.variant))
            instance = picked(endpoint, group, members)
            held.enter_context(instance.answering())
            passage = Passage(endpoint.name, instance, members, InvocationLimits(OPEN_SECONDS))
            with counted.by_container(chosen_containers(instance, members)[-1].name):
                stream = await _opened(passage, held)
            headers = {"content-type": CONTENT_TYPE, _VARIANT: group.variant}
            await send(_head(HTTPStatus.OK, headers))
            last = await self._last_event(stream, receive, send)
            await send({"type": "http.response.body", "body": last})

    async def _last_event(self, stream: ContainerStream, receive: Receive, send: Send) -> bytes:
        """Passes parts on, both ways, until one side ends; the event of an error, if it was one."""
        last, code = b"", CloseCode.GOING_AWAY
        try:
            async with asyncio.TaskGroup() as tasks:
                others = [self._until_stopped(), stream.keep_alive(), _to_container(stream, receive)]
                running = [tasks.create_task(other) for other in others]
                await _to_client(stream, send)
                for task in running:
                    task.cancel()
            last = _ended(stream)
        except* ClientGone:
            pass
        except* Stopping:
            last = internal_stream_failure(_STOPS)
        except* BadInput as errors:
            last = error_event(INVALID, str(errors.exceptions[0]))
            code = CloseCode.INVALID_DATA
        except* (UpstreamError, OSError) as errors:
            last = model_stream_error(STREAM_BROKEN, f"The container's stream broke: {errors.exceptions[0]}.")
        except* Exception as errors:
            log.exception("a stream failed", exc_info=errors.exceptions[0])
            last = internal_stream_failure(_FAILED)
        with contextlib.suppress(OSError):
            await stream.close(code)
        return last

    async def _until_stopped(self) -> None:
        await self._stopping.wait()
        raise Stopping


async def _opened(passage: Passage, held: AsyncExitStack) -> ContainerStream:
    """The stream to the one container, which ends with ``held``. Raises AwsError."""
    instance, members = passage.instance, passage.members
    (container, *others) = chosen_containers(instance, members)
    if others or instance.many_models:
        raise refused("Bidirectional streams are for endpoints of one container with one model.")
    path = members.get("ModelInvocationPath", PATH).removeprefix("/")
    query = members.get("ModelQueryString", "")
    target = f"/{path}?{query}" if query else f"/{path}"
    with passage.translated(container):
        try:
            opening = open_stream(container.host, container.port, target, OPEN_SECONDS)
            return await held.enter_async_context(opening)
        except UpstreamRefused as error:
            text = error.body.decode(errors="replace")
            raise model_error(container.name, error.status, text, passage.log_stream(container)) from error
        except BadInput as error:
            raise refused(str(error)) from error


async def _to_container(stream: ContainerStream, receive: Receive) -> None:
    """Closes the stream at the client's end. Raises UpstreamTimeout if the container does not, too."""
    async for frame in request_frames(receive):
        await stream.send(frame)
    await stream.close(CloseCode.NORMAL_CLOSURE)
    await asyncio.sleep(CLOSE_SECONDS)
    raise UpstreamTimeout("the container did not answer a close")


async def _to_client(stream: ContainerStream, send: Send) -> None:
    events = ResponseEvents()
    async for frame in stream.frames():
        await send({"type": "http.response.body", "body": events.event(frame), "more_body": True})


def _ended(stream: ContainerStream) -> bytes:
    """Nothing after 1000, else a ModelStreamError whose code is the container's close code."""
    closed = stream.closed
    if closed is None:
        return model_stream_error(STREAM_BROKEN, "The connection to the container broke without a close.")
    if closed.code == CloseCode.NORMAL_CLOSURE:
        return b""
    text = f"The container closed the stream with {closed.code}"
    return model_stream_error(
        str(int(closed.code)), f"{text}: {closed.reason}" if closed.reason else f"{text}."
    )


def _in_its_terms(error: AwsError) -> HttpResponse:
    """The answer to an error, by the names that this service has for it."""
    code = _CODES.get(error.code, error.code)
    answer = answer_to(AwsError(code, error.message, **error.members))
    return HttpResponse(_STATUSES.get(code, answer.status), answer.body, answer.headers)


async def _answer(send: Send, answer: HttpResponse) -> None:
    await send(_head(answer.status, answer.headers))
    await send({"type": "http.response.body", "body": answer.body})


def _head(status: int, headers: Mapping[str, str]) -> Message:
    fields: Iterable[tuple[str, str]] = {**headers, _REQUEST_ID: str(uuid.uuid4())}.items()
    coded = [(name.lower().encode(), value.encode("latin-1")) for name, value in fields]
    return {"type": "http.response.start", "status": status, "headers": coded}
