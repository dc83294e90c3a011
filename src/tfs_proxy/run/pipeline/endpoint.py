"""The one address of a pipeline: /ping, /metrics, /invocations and /execution-parameters."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from http import HTTPStatus

from msgspec.structs import replace

from tfs_proxy.observe.logs.access import RequestLog
from tfs_proxy.observe.request_record import chosen_id
from tfs_proxy.run.host.sockets import LOOPBACK
from tfs_proxy.run.pipeline.chain import ID_FIELD, Chain
from tfs_proxy.run.pipeline.metrics import PipelineMetrics
from tfs_proxy.run.pipeline.stage import Stage, message_of
from tfs_proxy.values.errors import UpstreamError, UpstreamTimeout
from tfs_proxy.values.memory import MEGABYTE
from tfs_proxy.wire.error_body import NOTHING_HERE
from tfs_proxy.wire.header_names import INFERENCE_ID, REQUEST_ID
from tfs_proxy.wire.http_client import get_async
from tfs_proxy.wire.http_messages import HttpRequest, HttpResponse
from tfs_proxy.wire.routes import EXECUTION_PARAMETERS, INVOCATIONS, METRICS, PING, Handlers, answer_by

ASK_SECONDS = 2.0
"""SageMaker's limit for a ping (docs/reference/sagemaker.md)."""


async def faults(stages: Sequence[Stage]) -> list[str]:
    """A sentence for each stage that is not ready (docs/reference/sagemaker.md)."""
    stage_faults = await asyncio.gather(*(_fault(stage) for stage in stages))
    return [f"{stage.name}: {fault}" for stage, fault in zip(stages, stage_faults, strict=True) if fault]


async def _fault(stage: Stage) -> str | None:
    try:
        reply = await get_async(LOOPBACK, stage.port, PING.path, ASK_SECONDS)
    except UpstreamTimeout:
        return f"no answer to /ping within {ASK_SECONDS:g} s"
    except UpstreamError:
        return "nothing listens on its port"
    if reply.status == HTTPStatus.OK:
        return None
    return message_of(reply.body) or f"/ping answers {reply.status}"


async def execution_parameters(stages: Sequence[Stage], hop_limit_bytes: int) -> dict[str, object]:
    """The minimum of the stages' answers, and no more MB than the limit between two stages.

    BatchStrategy is left out, which means MultiRecord, unless a stage takes one record a request.
    """
    answers = await asyncio.gather(*(_parameters(stage) for stage in stages))
    is_single = any(answer.get("BatchStrategy") == "SINGLE_RECORD" for answer in answers)
    return {
        "MaxConcurrentTransforms": min(_whole(answer, "MaxConcurrentTransforms", 1) for answer in answers),
        "MaxPayloadInMB": min(
            max(1, hop_limit_bytes // MEGABYTE), *(_whole(answer, "MaxPayloadInMB", 6) for answer in answers)
        ),
        **({"BatchStrategy": "SINGLE_RECORD"} if is_single else {}),
    }


async def _parameters(stage: Stage) -> Mapping[str, object]:
    try:
        reply = await get_async(LOOPBACK, stage.port, "/execution-parameters", ASK_SECONDS)
        answer = json.loads(reply.body)
    except (UpstreamError, ValueError):
        return {}
    return answer if isinstance(answer, dict) else {}


def _whole(answer: Mapping[str, object], name: str, default: int) -> int:
    value = answer.get(name)
    return value if isinstance(value, int) else default


_INFERENCE_ID = INFERENCE_ID.lower()
ALMOST = "starting: all stages are ready, the pipeline will be in a moment"


class PipelineEndpoint:
    """Routes requests, once every stage has been ready."""

    def __init__(
        self,
        stages: Sequence[Stage],
        chain: Chain,
        hop_limit_bytes: int,
        log: RequestLog,
    ) -> None:
        self.is_ready = False
        self._stages = stages
        self._chain = chain
        self._hop_limit_bytes = hop_limit_bytes
        self._metrics = PipelineMetrics(stages, log)
        self._handlers: Handlers = {
            PING: self._ping,
            METRICS: self._metrics.answer,
            INVOCATIONS: self._invoke,
            EXECUTION_PARAMETERS: self._parameters,
        }

    def begin_serving(self) -> None:
        self.is_ready = True

    async def respond(self, request: HttpRequest) -> HttpResponse:
        """Answers and counts one request; all stages and the answer have its id."""
        named = _named(request)
        return _with_id(named, await self._metrics.counted(named, self._route))

    def refused(self, request: HttpRequest, response: HttpResponse) -> HttpResponse:
        """Counts a request that the server refuses itself; its answer has an id, too."""
        named = _named(request)
        self._metrics.count(named, response.status, 0.0)
        return _with_id(named, response)

    async def _route(self, request: HttpRequest) -> HttpResponse:
        answer = await answer_by(self._handlers, request)
        return answer or HttpResponse.error(HTTPStatus.NOT_FOUND, NOTHING_HERE)

    async def _ping(self, _: HttpRequest) -> HttpResponse:
        """200 if all stages are ready, else 503 that names the others (docs/reference/sagemaker.md)."""
        found = await faults(self._stages)
        if found or not self.is_ready:
            return HttpResponse.error(HTTPStatus.SERVICE_UNAVAILABLE, "; ".join(found) or ALMOST)
        return HttpResponse(HTTPStatus.OK)

    async def _parameters(self, _: HttpRequest) -> HttpResponse:
        parameters = await execution_parameters(self._stages, self._hop_limit_bytes)
        return HttpResponse(HTTPStatus.OK, json.dumps(parameters).encode())

    async def _invoke(self, request: HttpRequest) -> HttpResponse:
        if not self.is_ready:
            found = "; ".join(await faults(self._stages))
            return HttpResponse.error(HTTPStatus.SERVICE_UNAVAILABLE, found or ALMOST)
        return await self._chain.invoke(request)


def _named(request: HttpRequest) -> HttpRequest:
    headers = request.headers
    request_id = chosen_id(headers.get(_INFERENCE_ID), headers.get(ID_FIELD))
    return replace(request, headers={**headers, ID_FIELD: request_id})


def _with_id(request: HttpRequest, response: HttpResponse) -> HttpResponse:
    return replace(response, headers={**response.headers, REQUEST_ID: request.headers[ID_FIELD]})
