"""The queue of an asynchronous endpoint, which sends requests to variants and delivers the answers."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus

from tfs_proxy.tools.endpoint.delivery import (
    AsyncConfig,
    AsyncOutcome,
    AsyncRequest,
    LocationFailed,
    Notifications,
    async_request,
    read_location,
    write_location,
)
from tfs_proxy.values.errors import Overloaded, RequestError
from tfs_proxy.values.memory import MEGABYTE
from tfs_proxy.wire.http_messages import HttpRequest, HttpResponse

log = logging.getLogger(__name__)

MOST_WAITING, MOST_WAITING_BYTES = 10_000, 256 * MEGABYTE

OCTETS = "application/octet-stream"

InvokeWithin = Callable[[Mapping[str, str], bytes, float], Awaitable[HttpResponse]]
"""Gives members and a body to a container; returns its answer of any status within so many seconds.

Raises RequestError.
"""


class AsyncQueue:
    """Queues requests from `start` to `stop`; each instance answers a number of them at once."""

    def __init__(
        self, config: AsyncConfig, instances: int, invoke: InvokeWithin, notifications: Notifications
    ) -> None:
        self._config, self._invoke, self._notifications = config, invoke, notifications
        self._workers = config.concurrent * instances
        self._waiting: asyncio.Queue[AsyncRequest] = asyncio.Queue()
        self._unfinished = self._held_bytes = 0
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        self._tasks = [asyncio.create_task(self._work()) for _ in range(self._workers)]

    def accept(self, request: HttpRequest) -> AsyncRequest:
        """Queues a call. Raises AwsError, and Overloaded if too many wait."""
        accepted = async_request(request, self._config)
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
        return _outcome_of(response)

    async def _finish(self, request: AsyncRequest, outcome: AsyncOutcome) -> None:
        address = request.output if outcome.failure is None else request.failure
        try:
            if address is not None:
                await asyncio.to_thread(write_location, address, outcome.body, outcome.content_type)
        except LocationFailed as error:
            log.warning("the asynchronous request %s: %s", request.inference_id, error)
            outcome = _failed(str(error))
        if outcome.failure is not None:
            log.warning("the asynchronous request %s failed: %s", request.inference_id, outcome.failure)
        try:
            await asyncio.to_thread(self._notifications.tell, request, outcome)
        except LocationFailed as error:
            log.warning("nobody is told about the asynchronous request %s: %s", request.inference_id, error)


def _failed(reason: str) -> AsyncOutcome:
    return AsyncOutcome("text/plain", reason.encode(), reason)


def _outcome_of(response: HttpResponse) -> AsyncOutcome:
    content_type = response.header("Content-Type") or OCTETS
    if HTTPStatus.OK <= response.status < HTTPStatus.MULTIPLE_CHOICES:
        return AsyncOutcome(content_type, response.body)
    kind = "server" if response.status >= HTTPStatus.INTERNAL_SERVER_ERROR else "client"
    reason = f"ClientError: received {kind} error ({response.status}) from the model; its log says more"
    return AsyncOutcome(content_type, response.body, reason)
