"""What the one address of a pipeline answers: /ping, /metrics, /invocations and /execution-parameters."""

import json
from collections.abc import Sequence

from msgspec.structs import replace

from tfs_proxy.observe.logs.access import RequestLog
from tfs_proxy.observe.request_record import chosen_id
from tfs_proxy.observe.routes import EXECUTION_PARAMETERS, INVOCATIONS
from tfs_proxy.pipeline import readiness
from tfs_proxy.pipeline.capturing import PipelineCapture
from tfs_proxy.pipeline.chain import ID_FIELD, Chain
from tfs_proxy.pipeline.metrics import PipelineMetrics
from tfs_proxy.pipeline.stage import Stage
from tfs_proxy.wire.error_body import NOTHING_HERE
from tfs_proxy.wire.header_names import INFERENCE_ID, REQUEST_ID
from tfs_proxy.wire.http_messages import HttpRequest, HttpResponse
from tfs_proxy.wire.routes import GET, Route, Routes

_INFERENCE_ID = INFERENCE_ID.lower()
OK, NOT_FOUND, UNAVAILABLE = 200, 404, 503
ALMOST = "starting: all stages are ready, the pipeline will be in a moment"


class PipelineEndpoint:
    """Routes requests; ``ready`` is set once every stage has been."""

    def __init__(
        self,
        stages: Sequence[Stage],
        chain: Chain,
        hop_limit_bytes: int,
        capture: PipelineCapture,
        log: RequestLog,
    ) -> None:
        self.ready = False
        self._stages = stages
        self._chain = chain
        self._hop_limit_bytes = hop_limit_bytes
        self._capture = capture
        self._metrics = PipelineMetrics(stages, log, capture.measure)
        self._routes = Routes(
            (
                Route("/ping", GET, self._ping),
                Route("/metrics", GET, self._metrics.answer),
                Route(INVOCATIONS, ("POST",), self._invoke),
                Route(EXECUTION_PARAMETERS, GET, self._parameters),
            )
        )

    async def respond(self, request: HttpRequest) -> HttpResponse:
        """Answer one request, and count it; all stages and the answer have its id."""
        named = _named(request)
        return _with_id(named, await self._metrics.counted(named, self._route))

    def refused(self, request: HttpRequest, response: HttpResponse) -> HttpResponse:
        """Count a request that the server refuses by itself; its answer has an id, too."""
        named = _named(request)
        self._metrics.count(named, response.status, 0.0)
        return _with_id(named, response)

    async def _route(self, request: HttpRequest) -> HttpResponse:
        answer = await self._routes.answer(request)
        return answer or HttpResponse.error(NOT_FOUND, NOTHING_HERE)

    async def _ping(self, _: HttpRequest) -> HttpResponse:
        """200 if all stages are ready, else 503 that names the others (docs/reference/sagemaker.md)."""
        faults = await readiness.faults(self._stages)
        if faults or not self.ready:
            return HttpResponse.error(UNAVAILABLE, "; ".join(faults) or ALMOST)
        return HttpResponse(OK)

    async def _parameters(self, _: HttpRequest) -> HttpResponse:
        parameters = await readiness.execution_parameters(self._stages, self._hop_limit_bytes)
        return HttpResponse(OK, json.dumps(parameters).encode())

    async def _invoke(self, request: HttpRequest) -> HttpResponse:
        if not self.ready:
            faults = "; ".join(await readiness.faults(self._stages))
            return HttpResponse.error(UNAVAILABLE, faults or ALMOST)
        response = await self._chain.invoke(request)
        self._capture.add(request, response)
        return response


def _named(request: HttpRequest) -> HttpRequest:
    headers = request.headers
    request_id = chosen_id(headers.get(_INFERENCE_ID), headers.get(ID_FIELD))
    return replace(request, headers={**headers, ID_FIELD: request_id})


def _with_id(request: HttpRequest, response: HttpResponse) -> HttpResponse:
    return replace(response, headers={**response.headers, REQUEST_ID: request.headers[ID_FIELD]})
