"""The metrics of a pipeline: of its own requests, and of all stages with their numbers."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from http import HTTPStatus

from tfs_proxy.observe import catalogue
from tfs_proxy.observe.logs.access import RequestLine, RequestLog
from tfs_proxy.observe.logs.entry import COMMAND
from tfs_proxy.observe.metric import MeasuredMetric, Points
from tfs_proxy.observe.request_counts import FinishedRequest, RequestCounts
from tfs_proxy.run.host.sockets import LOOPBACK
from tfs_proxy.run.pipeline.chain import ID_FIELD
from tfs_proxy.run.pipeline.stage import Stage
from tfs_proxy.values.errors import UpstreamError
from tfs_proxy.wire.http_client import get_async
from tfs_proxy.wire.http_messages import HttpRequest, HttpResponse
from tfs_proxy.wire.routes import METRICS

STAGE_SECONDS = 1.0
"""Limit for a stage's metrics; a later stage is left out of the scrape."""

WHOLE_PIPELINE = "all"


Respond = Callable[[HttpRequest], Awaitable[HttpResponse]]


class PipelineMetrics:
    """Counts and logs the requests that ``respond`` answers, and collects the stages' metrics."""

    def __init__(self, stages: Sequence[Stage], log: RequestLog) -> None:
        self._stages = stages
        self._requests = RequestCounts()
        self._log = log
        self._in_flight = 0

    async def counted(self, request: HttpRequest, respond: Respond) -> HttpResponse:
        began = time.perf_counter()
        self._in_flight += 1
        status = HTTPStatus.INTERNAL_SERVER_ERROR.value
        try:
            response = await respond(request)
            status = response.status
        finally:
            self._in_flight -= 1
            self.count(request, status, time.perf_counter() - began)
        return response

    def count(self, request: HttpRequest, status: int, seconds: float) -> None:
        finished = FinishedRequest(request.method, status, seconds, request.path)
        self._requests.add(finished)
        self._log.show(RequestLine(finished, request.headers.get(ID_FIELD, "")), COMMAND)

    async def answer(self, request: HttpRequest) -> HttpResponse:
        # Its library takes 70 ms to import, which the start should not wait for.
        from tfs_proxy.observe.exposition import expose, merged, text_of

        texts = dict(zip(self._names(), await self._texts(), strict=True))
        up: Points = {(name,): float(bool(text)) for name, text in texts.items()}
        texts[WHOLE_PIPELINE] = text_of(self._of_clients())
        own = [MeasuredMetric(catalogue.PIPELINE_STAGE_UP, up)]
        answer = expose(own, request.headers.get("accept"), merged(texts, "stage"))
        return HttpResponse(HTTPStatus.OK, answer.body, {"Content-Type": answer.content_type})

    def _of_clients(self) -> Iterator[MeasuredMetric]:
        yield from self._requests.measure()
        in_flight = self._in_flight - 1  # left out of this scrape
        yield MeasuredMetric(catalogue.REQUESTS_IN_FLIGHT, {(): in_flight})

    def _names(self) -> list[str]:
        return [str(stage.number) for stage in self._stages]

    async def _texts(self) -> list[str]:
        return await asyncio.gather(*(_text(stage) for stage in self._stages))


async def _text(stage: Stage) -> str:
    """A stage's metrics; empty if it does not answer."""
    try:
        answer = await get_async(LOOPBACK, stage.port, METRICS.path, STAGE_SECONDS)
    except UpstreamError:
        return ""
    return answer.body.decode(errors="replace") if answer.status == HTTPStatus.OK else ""
