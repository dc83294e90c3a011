"""InvokeEndpointAsync: the queues of endpoints whose config has an AsyncInferenceConfig."""

import asyncio
import json
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus

from tfs_proxy.tools.endpoint.aws_api import (
    UNAVAILABLE,
    AwsError,
    header_name,
    original_answer,
    refused,
)
from tfs_proxy.tools.endpoint.delivery import (
    ASYNC,
    MOST_BYTES,
    AsyncConfig,
    AsyncOutcome,
    AsyncRequest,
    LocationFailed,
    async_config,
    async_request,
    read_location,
    write_location,
)
from tfs_proxy.tools.endpoint.hosting import HostedEndpoint
from tfs_proxy.tools.endpoint.invoke import InvocationLimits, ask
from tfs_proxy.tools.endpoint.operations import EndpointConfig
from tfs_proxy.values.errors import Overloaded, RequestError
from tfs_proxy.values.layout import LocalFiles
from tfs_proxy.values.memory import MEGABYTE
from tfs_proxy.wire.http_messages import HttpRequest, HttpResponse
from tfs_proxy.wire.media_types import BYTES, TEXT

log = logging.getLogger(__name__)

MOST_WAITING = 10_000
MOST_WAITING_BYTES = 256 * MEGABYTE


InvokeWithin = Callable[[Mapping[str, str], bytes, float], Awaitable[HttpResponse]]
"""Gives members and a body to a container; returns its answer of any status within so many seconds.

Raises RequestError.
"""


class AsyncQueue:
    """Queues requests from `start` to `stop`; each instance answers a number of them at once."""

    def __init__(
        self,
        config: AsyncConfig,
        instances: int,
        invoke: InvokeWithin,
        files: LocalFiles,
    ) -> None:
        self._config = config
        self._invoke = invoke
        self._files = files
        self._workers = config.concurrent * instances
        self._waiting: asyncio.Queue[AsyncRequest] = asyncio.Queue()
        self._unfinished = self._held_bytes = 0
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        self._tasks = [asyncio.create_task(self._work()) for _ in range(self._workers)]

    def accept(self, request: HttpRequest) -> AsyncRequest:
        """Queues a call. Raises AwsError, and Overloaded if too many wait."""
        accepted = async_request(request, self._config, self._files)
        if self._unfinished >= MOST_WAITING or self._held_bytes + len(accepted.body) > MOST_WAITING_BYTES:
            raise Overloaded(f"{self._unfinished} requests wait already: try again, or use InputLocation.")
        self._waiting.put_nowait(accepted)
        self._unfinished += 1
        self._held_bytes += len(accepted.body)
        return accepted

    async def stop(self, seconds: float) -> None:
        """Answers what waits, for at most ``seconds``; logs how many requests are lost then."""
        try:
            async with asyncio.timeout(seconds):
                await self._waiting.join()
        except TimeoutError:
            log.warning("asynchronous requests that are lost, since the run ends: %d", self._unfinished)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _work(self) -> None:
        while True:
            request = await self._waiting.get()
            try:
                await self._finish(request, await self._outcome(request))
            except Exception:
                log.exception("the asynchronous request %s failed", request.inference_id)
            finally:
                self._waiting.task_done()
                self._unfinished -= 1
                self._held_bytes -= len(request.body)

    async def _outcome(self, request: AsyncRequest) -> AsyncOutcome:
        if request.has_expired(time.time()):
            return _failed("the request has expired: it waited for longer than RequestTTLSeconds")
        try:
            body = request.body
            if request.input_location is not None:
                body = await asyncio.to_thread(read_location, request.input_location)
            response = await self._invoke(request.members, body, request.timeout_seconds)
        except (LocationFailed, RequestError) as error:
            return _failed(str(error))
        except Exception:
            log.exception("the asynchronous request %s failed", request.inference_id)
            return _failed("InternalFailure: the endpoint failed; its log has the reason")
        content_type = response.header("Content-Type") or BYTES
        if HTTPStatus.OK <= response.status < HTTPStatus.MULTIPLE_CHOICES:
            return AsyncOutcome(content_type, response.body)
        kind = "server" if response.status >= HTTPStatus.INTERNAL_SERVER_ERROR else "client"
        reason = f"ClientError: received {kind} error ({response.status}) from the model; its log says more"
        return AsyncOutcome(content_type, response.body, reason)

    async def _finish(self, request: AsyncRequest, outcome: AsyncOutcome) -> None:
        address = request.output if outcome.failure is None else request.failure
        try:
            if address is not None:
                await asyncio.to_thread(write_location, address, outcome.body, outcome.content_type)
        except LocationFailed as error:
            log.warning("the asynchronous request %s: %s", request.inference_id, error)
        if outcome.failure is not None:
            log.warning("the asynchronous request %s failed: %s", request.inference_id, outcome.failure)


def _failed(reason: str) -> AsyncOutcome:
    return AsyncOutcome(TEXT, reason.encode(), reason)


CLOSE_SECONDS = 10.0
"""Limit of what waits in the queue of a config that another one has replaced."""


class AsyncQueues:
    """InvokeEndpointAsync by the queue of each endpoint, made on first use."""

    def __init__(self, files: LocalFiles) -> None:
        self._files = files
        self._current: dict[str, tuple[EndpointConfig, AsyncQueue | None]] = {}
        self._closing: set[asyncio.Task[None]] = set()

    def of(self, endpoint: HostedEndpoint) -> AsyncQueue | None:
        """The queue by the endpoint's config; None if that has no AsyncInferenceConfig."""
        config, queue = self._current.get(endpoint.name, (None, None))
        if config is not endpoint.config:
            if queue is not None:
                task = asyncio.create_task(queue.stop(CLOSE_SECONDS))
                self._closing.add(task)
                task.add_done_callback(self._closing.discard)
            queue = self._made(endpoint)
            self._current[endpoint.name] = endpoint.config, queue
        return queue

    async def invoke(self, endpoint: HostedEndpoint, request: HttpRequest) -> HttpResponse:
        """Queues a request: 202 with the id, and both locations as headers. Raises AwsError."""
        queue = self.of(endpoint)
        if queue is None:
            raise refused(f"Endpoint {endpoint.name} is not asynchronous: it has no AsyncInferenceConfig.")
        endpoint.group_for({})
        try:
            accepted = queue.accept(request)
        except Overloaded as error:
            raise AwsError(UNAVAILABLE, str(error)) from error
        locations = {"OutputLocation": accepted.output, "FailureLocation": accepted.failure}
        headers = {
            header_name(ASYNC, "out", member): address
            for member, address in locations.items()
            if address is not None
        }
        body = json.dumps({"InferenceId": accepted.inference_id}).encode()
        return HttpResponse(HTTPStatus.ACCEPTED, body, headers)

    async def close(self, seconds: float) -> None:
        """Answers what waits, for at most ``seconds``."""
        queues = (queue for _, queue in self._current.values() if queue is not None)
        await asyncio.gather(*(queue.stop(seconds) for queue in queues), *self._closing)

    def _made(self, endpoint: HostedEndpoint) -> AsyncQueue | None:
        config = async_config(endpoint.config.parameters, endpoint.config.folder)
        if config is None:
            return None

        async def invoke(members: Mapping[str, str], body: bytes, seconds: float) -> HttpResponse:
            limits = InvocationLimits(seconds, MOST_BYTES)
            try:
                return await ask(endpoint, endpoint.group_for(members), members, body, limits)
            except AwsError as error:
                if (answer := original_answer(error)) is None:
                    raise
                return answer

        instances = sum(variant.instance_count for variant in endpoint.config.variants)
        queue = AsyncQueue(config, instances, invoke, self._files)
        queue.start()
        return queue
