"""The way of one request through all stages of a pipeline."""

import asyncio
from collections.abc import Mapping, Sequence
from http import HTTPStatus

from msgspec import Struct, field
from msgspec.structs import replace

from tfs_proxy.run.pipeline.stage import StageClient, StageFailed
from tfs_proxy.values.memory import MEGABYTE
from tfs_proxy.wire.error_body import error_body
from tfs_proxy.wire.header_names import (
    ASKS_TIMING,
    REQUEST_ID,
    SAGEMAKER_PREFIX,
    TRACEPARENT,
    TRACESTATE,
    X_RAY,
)
from tfs_proxy.wire.http_messages import HttpRequest, HttpResponse
from tfs_proxy.wire.media_types import BYTES

PLATFORM = SAGEMAKER_PREFIX.lower()
"""Headers of SageMaker's contract: every stage gets the caller's, the caller the last stage's."""

ID_FIELD = REQUEST_ID.lower()
OF_THE_REQUEST = (ID_FIELD, TRACEPARENT, TRACESTATE, X_RAY.lower())
"""Headers that every stage gets, too; the trace is read there."""

OF_THE_BODY = ("content-type", "content-encoding")


class _Passage(Struct):
    """A request under way: body and headers for the next stage, and milliseconds so far."""

    body: bytes
    headers: Mapping[str, str]
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
    ) -> None:
        self._clients = clients
        self._seconds = seconds
        self._hop_limit_bytes = hop_limit_bytes

    async def invoke(self, request: HttpRequest) -> HttpResponse:
        """The last stage's answer, or a 424 that names the failed stage (docs/reference/sagemaker.md).

        With a header ``X-Tfs-Proxy-Timing`` the answer has the stages' times as Server-Timing.
        """
        passage = _Passage(request.body, _only(request.headers, OF_THE_BODY))
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
            if name.startswith(PLATFORM) or name in OF_THE_REQUEST
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
            return await client.invoke(passage.body, {**passage.headers, **headers}, seconds)
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
