"""The one address of a pipeline: /ping, /live, /metrics, /invocations and /execution-parameters."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from http import HTTPStatus

from msgspec import Struct
from msgspec.json import decode
from msgspec.structs import replace

from tfs_proxy.observe import catalogue
from tfs_proxy.observe.logs.access import reason_text
from tfs_proxy.observe.metric import MeasuredMetric, Points
from tfs_proxy.run.pipeline.passage import SUCCESSES, ContainerFailed, Passage
from tfs_proxy.run.pipeline.stage import Stage
from tfs_proxy.run.readiness import Readiness, StackState
from tfs_proxy.values.errors import AnswerTooLarge, NotReached, Overloaded, UpstreamError, UpstreamTimeout
from tfs_proxy.values.memory import MEGABYTE
from tfs_proxy.wire.error_body import error_body, error_text, nothing_here
from tfs_proxy.wire.header_names import (
    ASKS_TIMING,
    REQUEST_ID,
    SAGEMAKER_PREFIX,
    STAGE_TIMES,
    TRACEPARENT,
    TRACESTATE,
)
from tfs_proxy.wire.http_client import get_async
from tfs_proxy.wire.http_messages import HttpRequest, HttpResponse
from tfs_proxy.wire.media_types import BYTES
from tfs_proxy.wire.routes import EXECUTION_PARAMETERS, INVOCATIONS, LIVENESS, METRICS, PING, answer_by

ASK_SECONDS = 1.5
"""Limit of a stage's own pages: SageMaker, and nginx, wait 2 s for a ping (docs/reference/sagemaker.md)."""

SCRAPE_SECONDS = 1.0
"""Limit of a stage's metrics."""

HOP_MB = 5
"""Limit of a body from one stage to the next: SageMaker's (docs/reference/sagemaker.md)."""

LONGEST_MESSAGE = 2048
"""Limit of a stage's own error text for the client, in characters, as in OriginalMessage
(docs/reference/sagemaker.md).
"""

PLATFORM = SAGEMAKER_PREFIX.lower()
HANDED_ON = ("content-type", "content-encoding", "accept", REQUEST_ID.lower(), TRACEPARENT, TRACESTATE)
"""Headers of a request for the stages, beside SageMaker's; the trace is read there."""

COPIES = 2
"""A body is in memory twice: as it arrives, and as the request's."""

WAIT_SECONDS = 5.0


class Parameters(Struct):
    """A stage's answer to `/execution-parameters`."""

    MaxConcurrentTransforms: int = 1
    MaxPayloadInMB: int = 6
    BatchStrategy: str = ""


class PipelineEndpoint:
    """Answers clients: requests go through ``stages``, within ``seconds``, unless the row is starting.

    ``readiness`` is that of the row; ``measure`` has the counts of all requests.
    """

    def __init__(
        self,
        stages: Sequence[Stage],
        readiness: Readiness,
        seconds: float,
        measure: Callable[[], Iterable[MeasuredMetric]],
    ) -> None:
        self.in_flight = 0
        self._stages = stages
        self._readiness = readiness
        self._seconds = seconds
        self._measure = measure
        self._handlers = {
            PING: self._ping,
            LIVENESS: self._live,
            METRICS: self._metrics,
            INVOCATIONS: self._invoke,
            EXECUTION_PARAMETERS: self._parameters,
        }

    async def respond(self, request: HttpRequest) -> HttpResponse:
        self.in_flight += 1
        try:
            answer = await answer_by(self._handlers, request)
        finally:
            self.in_flight -= 1
        return answer or HttpResponse(HTTPStatus.NOT_FOUND, nothing_here(request.path)[1])

    async def faults(self) -> list[str]:
        """A sentence for each stage that is not ready (docs/reference/sagemaker.md)."""

        async def fault(stage: Stage) -> str | None:
            try:
                reply = await get_async(stage.host, stage.port, PING.path, ASK_SECONDS)
            except UpstreamTimeout:
                return f"no answer to /ping within {ASK_SECONDS:g} s"
            except UpstreamError:
                return "nothing listens on its port"
            if reply.status == HTTPStatus.OK:
                return None
            return message_of(reply.body) or f"/ping answers {reply.status}"

        faults = await asyncio.gather(*map(fault, self._stages))
        return [f"{stage.name}: {fault}" for stage, fault in zip(self._stages, faults, strict=True) if fault]

    async def _ping(self, _: HttpRequest) -> HttpResponse:
        """200 if all stages are ready, else 503 that names the others (docs/reference/sagemaker.md)."""
        state = self._readiness.state
        faults = await self.faults()
        if state is StackState.READY and not faults:
            return HttpResponse(HTTPStatus.OK)
        return HttpResponse.error(HTTPStatus.SERVICE_UNAVAILABLE, "; ".join(faults) or state.of_run)

    async def _live(self, _: HttpRequest) -> HttpResponse:
        return HttpResponse(HTTPStatus.OK)

    async def _metrics(self, request: HttpRequest) -> HttpResponse:
        """The pipeline's own requests, and the metrics of all stages that answer in time."""
        # Its library takes 70 ms to import, which the start should not wait for.
        from tfs_proxy.observe.exposition import expose, merged, text_of

        pages = await asyncio.gather(*(_page(stage, METRICS.path, SCRAPE_SECONDS) for stage in self._stages))
        texts = {str(stage.number): page for stage, page in zip(self._stages, pages, strict=True)}
        up: Points = {(number,): float(bool(text)) for number, text in texts.items()}
        in_flight = MeasuredMetric(catalogue.REQUESTS_IN_FLIGHT, {(): self.in_flight - 1})  # but this scrape
        texts["all"] = text_of([*self._measure(), in_flight])
        own = [MeasuredMetric(catalogue.PIPELINE_STAGE_UP, up)]
        answer = expose(own, request.headers.get("accept"), merged(texts, "stage"))
        return HttpResponse(HTTPStatus.OK, answer.body, {"Content-Type": answer.content_type})

    async def _parameters(self, _: HttpRequest) -> HttpResponse:
        """The minimum of the stages' answers, and no more MB than the limit between two stages.

        BatchStrategy is left out, which means MultiRecord, unless a stage takes one record a request.
        """
        pages = (_page(stage, EXECUTION_PARAMETERS.path, ASK_SECONDS) for stage in self._stages)
        answers = list(map(_parameters_of, await asyncio.gather(*pages)))
        parameters: dict[str, object] = {
            "MaxConcurrentTransforms": min(answer.MaxConcurrentTransforms for answer in answers),
            "MaxPayloadInMB": min(HOP_MB, *(answer.MaxPayloadInMB for answer in answers)),
        }
        if any(answer.BatchStrategy == "SINGLE_RECORD" for answer in answers):
            parameters["BatchStrategy"] = "SINGLE_RECORD"
        return HttpResponse(HTTPStatus.OK, json.dumps(parameters).encode())

    async def _invoke(self, request: HttpRequest) -> HttpResponse:
        """The last stage's answer, or a 424 that names the failed stage (docs/reference/sagemaker.md).

        With a header ``X-Tfs-Proxy-Timing`` the answer has the stages' times as Server-Timing.
        """
        if self._readiness.state is StackState.STARTING:
            return await self._ping(request)
        headers = {
            name: value
            for name, value in request.headers.items()
            if name.startswith(PLATFORM) or name in HANDED_ON
        }
        passage = Passage(self._stages, headers, self._seconds, HOP_MB * MEGABYTE)
        try:
            last = await passage.through(request.body)
        except ContainerFailed as failed:
            how, status, message = self._failure(failed)
            text = f"{failed.container} {how}: {message}"
            body = error_body(text, OriginalStatusCode=status, OriginalMessage=message)
            # The message may have a client's text, which the log is without.
            reason = {STAGE_TIMES: reason_text(f"{failed.container} {how}")}
            response = HttpResponse(HTTPStatus.FAILED_DEPENDENCY, body, reason)
        else:
            kept = {name: value for name, value in last.headers.items() if name.lower().startswith(PLATFORM)}
            kind = last.header("Content-Type") or BYTES
            response = HttpResponse(last.status, last.body, {"Content-Type": kind, **kept})
        finally:
            for stage, seconds, failure in passage.passed:
                stage.count(seconds, failure)
        if ASKS_TIMING.lower() not in request.headers:
            return response
        times = [f"stage{stage.number};dur={1000 * seconds:.2f}" for stage, seconds, _ in passage.passed]
        return replace(response, headers={**response.headers, "Server-Timing": ", ".join(times)})

    def _failure(self, failed: ContainerFailed) -> tuple[str, int, str]:
        """Words for a stage's failure, the status that stands for it, and its own text, as in ModelError."""
        match failed.outcome:
            case HttpResponse(status=status, body=body) if status not in SUCCESSES:
                return f"answered {status}", status, message_of(body)
            case HttpResponse(body=body):
                sizes = f"{len(body) / MEGABYTE:.1f} MB, and at most {HOP_MB} MB"
                message = f"its answer has {sizes} go on to the next stage"
                return "gave too large an answer", HTTPStatus.REQUEST_ENTITY_TOO_LARGE, message
            case NotReached():
                return "can't be reached", 503, "it is down, or being restarted"
            case UpstreamTimeout():
                return "did not answer", 504, "the time for the request is over"
            case AnswerTooLarge() as error:
                return "answered too much", 502, str(error)
            case _:
                return "gave no answer", 503, "the connection to it broke"


def message_of(body: bytes) -> str:
    """The text under ``error`` in an error's body, or the body itself; shortened."""
    text = error_text(body)
    message = body.decode(errors="replace") if text is None else text
    return message if len(message) <= LONGEST_MESSAGE else f"{message[:LONGEST_MESSAGE]}..."


async def _page(stage: Stage, path: str, seconds: float) -> str:
    """A page of a stage; empty if it has none."""
    try:
        answer = await get_async(stage.host, stage.port, path, seconds)
    except UpstreamError:
        return ""
    return answer.body.decode(errors="replace") if answer.status == HTTPStatus.OK else ""


def _parameters_of(page: str) -> Parameters:
    """Those of a stage; of one that tells none, the least."""
    try:
        return decode(page, type=Parameters)
    except ValueError:
        return Parameters()


class BodyMemory:
    """Limits the bytes that bodies of all requests take together."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._held_bytes = 0
        self._freed = asyncio.Event()

    @asynccontextmanager
    async def held(self, body_bytes: int) -> AsyncIterator[None]:
        """Holds a body's memory while the block runs. Raises Overloaded if none becomes free."""
        size_bytes = min(COPIES * body_bytes, self._limit_bytes)
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                while self._held_bytes + size_bytes > self._limit_bytes:
                    self._freed.clear()
                    await self._freed.wait()
                self._held_bytes += size_bytes
        except TimeoutError:
            raise Overloaded(
                "Other large requests have the memory that this one needs: try again. "
                "TFS_PROXY_MAX_DECODED_TOTAL_MB sets how much all together may take."
            ) from None
        try:
            yield
        finally:
            self._held_bytes -= size_bytes
            self._freed.set()
