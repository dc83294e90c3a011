"""The way of one request through all stages of a pipeline, with its trace."""

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from http import HTTPStatus
from typing import Protocol

from msgspec import Struct, field
from msgspec.structs import replace

from tfs_proxy.observe.tracing.choice import trace_choice
from tfs_proxy.observe.tracing.parents import parent_in
from tfs_proxy.run.pipeline.stage import StageClient, StageFailed
from tfs_proxy.values.memory import MEGABYTE
from tfs_proxy.wire.error_body import error_body
from tfs_proxy.wire.header_names import ASKS_TIMING, REQUEST_ID, SAGEMAKER_PREFIX, TRACEPARENT, TRACESTATE
from tfs_proxy.wire.http_messages import HttpRequest, HttpResponse
from tfs_proxy.wire.media_types import BYTES

log = logging.getLogger(__name__)


class RequestTrace(Protocol):
    def stage(self, number: int) -> AbstractContextManager[Mapping[str, str]]:
        """The headers with the trace for a stage; its block lasts while the stage answers."""

    def end(self, status: int) -> None:
        """Ends the trace with the answer's status; 0 if there is none."""


class HandedOn:
    """Passes on the client's trace, which a stage may record even if it is off here."""

    def __init__(self, request: HttpRequest) -> None:
        parent = parent_in(request.headers)
        self._headers: dict[str, str] = {}
        if parent is not None:
            self._headers[TRACEPARENT] = parent.header
            if parent.state:
                self._headers[TRACESTATE] = parent.state

    @contextmanager
    def stage(self, _number: int) -> Iterator[Mapping[str, str]]:
        yield self._headers

    def end(self, status: int) -> None:
        """Nothing."""


class PipelineTraces(Struct, frozen=True):
    """Starts the traces of requests, and ends all with the process."""

    begin: Callable[[HttpRequest], RequestTrace] = HandedOn
    close: Callable[[], None] = lambda: None


def pipeline_traces(environ: Mapping[str, str]) -> PipelineTraces:
    """Reads the OTEL_* variables in ``environ``, which must be this process's own.

    If OpenTelemetry refuses one, that is logged and no traces are sent.
    """
    sampling = trace_choice(environ).sampling
    if sampling is None:
        return PipelineTraces()
    try:
        # OpenTelemetry takes a few hundred ms to import, which reads variables, too.
        from tfs_proxy.observe.tracing.provider import ProcessTraces
        from tfs_proxy.observe.tracing.spans import PipelineSpan

        traces = ProcessTraces(environ, sampling)
    except Exception as error:  # noqa: BLE001 - whatever the variables make its parts raise
        log.warning("no traces are sent: OpenTelemetry can't be configured: %s", error)
        return PipelineTraces()
    return PipelineTraces(
        lambda request: PipelineSpan(traces.tracer, request.method, request.path, request.headers),
        traces.close,
    )


PLATFORM = SAGEMAKER_PREFIX.lower()
"""Headers of SageMaker's contract: every stage gets the caller's, the caller the last stage's."""

ID_FIELD = REQUEST_ID.lower()
OF_THE_BODY = ("content-type", "content-encoding")


class _Passage(Struct):
    """A request under way: body and headers for the next stage, and milliseconds so far."""

    body: bytes
    headers: Mapping[str, str]
    trace: RequestTrace
    milliseconds: list[tuple[int, float]] = field(default_factory=list)

    @property
    def timing(self) -> str:
        return ", ".join(f"stage{number};dur={spent:.2f}" for number, spent in self.milliseconds)


class Chain:
    """Passes requests through all stages: within ``seconds``, with bodies of at most ``hop_limit_bytes``."""

    def __init__(
        self,
        clients: Sequence[StageClient],
        seconds: float,
        hop_limit_bytes: int,
        traces: PipelineTraces | None = None,
    ) -> None:
        self._clients = clients
        self._seconds = seconds
        self._hop_limit_bytes = hop_limit_bytes
        self._traces = traces or PipelineTraces()

    async def invoke(self, request: HttpRequest) -> HttpResponse:
        """The last stage's answer, or a 424 that names the failed stage (docs/reference/sagemaker.md).

        With a header ``X-Tfs-Proxy-Timing`` the answer has the stages' times as Server-Timing.
        """
        trace = self._traces.begin(request)
        status = 0
        try:
            response = await self._answer(request, trace)
            status = response.status
        finally:
            trace.end(status)
        return response

    async def _answer(self, request: HttpRequest, trace: RequestTrace) -> HttpResponse:
        passage = _Passage(request.body, _only(request.headers, OF_THE_BODY), trace)
        try:
            last = await self._pass(request, passage)
            response = HttpResponse(last.status, last.body, _passed_headers(last))
        except StageFailed as failed:
            response = HttpResponse(HTTPStatus.FAILED_DEPENDENCY, _error_body(failed))
        if ASKS_TIMING.lower() not in request.headers:
            return response
        return replace(response, headers={**response.headers, "Server-Timing": passage.timing})

    async def _pass(self, request: HttpRequest, passage: _Passage) -> HttpResponse:
        clock = asyncio.get_running_loop().time
        deadline = clock() + self._seconds
        platform = {
            name: value
            for name, value in request.headers.items()
            if name.startswith(PLATFORM) or name == ID_FIELD
        }
        *others, last = self._clients
        for client in others:
            response = await self._invoke(client, passage, platform, deadline - clock())
            if len(response.body) > self._hop_limit_bytes:
                raise self._too_large(client, len(response.body))
            passage.body, passage.headers = response.body, {"content-type": _type_of(response)}
        accept = _only(request.headers, ("accept",))
        return await self._invoke(last, passage, {**platform, **accept}, deadline - clock())

    async def _invoke(
        self, client: StageClient, passage: _Passage, headers: Mapping[str, str], seconds: float
    ) -> HttpResponse:
        clock = asyncio.get_running_loop().time
        started = clock()
        try:
            with passage.trace.stage(client.stage.number) as traced:
                return await client.invoke(passage.body, {**passage.headers, **headers, **traced}, seconds)
        finally:
            passage.milliseconds.append((client.stage.number, 1000 * (clock() - started)))

    def _too_large(self, client: StageClient, size: int) -> StageFailed:
        message = (
            f"its answer has {size / MEGABYTE:.1f} MB, and at most {self._hop_limit_bytes / MEGABYTE:g} MB "
            "go on to the next stage (TFS_PROXY_HOP_LIMIT_MB)"
        )
        client.counts.refused += 1
        return client.failed("gave too large an answer", HTTPStatus.REQUEST_ENTITY_TOO_LARGE, message)


def _only(headers: Mapping[str, str], names: Sequence[str]) -> dict[str, str]:
    return {name: headers[name] for name in names if name in headers}


def _type_of(response: HttpResponse) -> str:
    return response.header("content-type") or BYTES


def _passed_headers(response: HttpResponse) -> dict[str, str]:
    platform = {name: value for name, value in response.headers.items() if name.lower().startswith(PLATFORM)}
    return {"Content-Type": _type_of(response), **platform}


def _error_body(failed: StageFailed) -> bytes:
    """An error with the two fields of SageMaker's ModelError (docs/reference/sagemaker.md)."""
    return error_body(str(failed), OriginalStatusCode=failed.status, OriginalMessage=failed.message)
