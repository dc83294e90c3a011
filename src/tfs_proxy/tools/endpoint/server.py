"""The one address of all endpoints: routes of `sagemaker-runtime` and of `sagemaker`, and of this program."""

import json
import logging
import re
import uuid
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus

from msgspec.structs import replace

from tfs_proxy.tools.endpoint.aws_api import AwsError, answer_to
from tfs_proxy.tools.endpoint.companions import AsyncInvoker, Companions
from tfs_proxy.tools.endpoint.control_plane import TARGET, ControlPlane
from tfs_proxy.tools.endpoint.hosted_endpoint import HostedEndpoint
from tfs_proxy.tools.endpoint.hosting import Hosting
from tfs_proxy.tools.endpoint.invoke import Invoker, refuse_large
from tfs_proxy.tools.endpoint.metrics import VariantMetrics
from tfs_proxy.tools.endpoint.stream import StreamInvoker
from tfs_proxy.wire.http_messages import HttpRequest, HttpResponse, StreamedResponse

log = logging.getLogger(__name__)

INTERNAL = "InternalFailure"
REQUEST_ID = "x-amzn-RequestId"
_CALL = re.compile(r"/endpoints/([^/]+)/([a-z-]+)")

RuntimeAnswer = HttpResponse | StreamedResponse
RuntimeCall = Callable[[HostedEndpoint, HttpRequest], Awaitable[RuntimeAnswer]]


class EndpointServer:
    """Answers clients of AWS's two services; ``calls`` are those of the runtime, by the end of their path."""

    def __init__(
        self, hosting: Hosting, metrics: VariantMetrics, invoker: Invoker, companions: Companions
    ) -> None:
        self._hosting, self._metrics = hosting, metrics
        self._control_plane = ControlPlane(hosting)
        self._companions = companions
        self.calls: dict[str, RuntimeCall] = {
            "invocations": invoker.invoke_endpoint,
            "invocations-response-stream": StreamInvoker(metrics).invoke,
            "async-invocations": AsyncInvoker(companions).invoke,
        }
        self._pages: Mapping[str, Callable[[], HttpResponse]] = {
            "/ping": self._ping,
            "/metrics": self._metrics_page,
            "/shadows": self._shadows_page,
        }

    async def respond(self, request: HttpRequest) -> RuntimeAnswer:
        """Answers one request; every answer has an id."""
        answer: RuntimeAnswer
        try:
            answer = await self._routed(request)
        except AwsError as error:
            answer = answer_to(error)
        except Exception:
            log.exception("%s %s failed", request.method, request.path)
            answer = answer_to(AwsError(INTERNAL, "The endpoint failed; its log has the reason."))
        return replace(answer, headers={**answer.headers, REQUEST_ID: str(uuid.uuid4())})

    async def _routed(self, request: HttpRequest) -> RuntimeAnswer:
        match = _CALL.fullmatch(request.path)
        if match and match[2] in self.calls and request.method == "POST":
            refuse_large(request.body)
            return await self.calls[match[2]](self._hosting.known(match[1]), request)
        if request.path == "/" and TARGET in request.headers:
            return self._control_plane.respond(request)
        page = self._pages.get(request.path)
        if page is None or request.method not in {"GET", "HEAD"}:
            text = f"{request.method} {request.path} is not a call of AWS's API, or {', '.join(self._pages)}."
            return HttpResponse.error(HTTPStatus.NOT_FOUND, text)
        return page()

    def _ping(self) -> HttpResponse:
        """200 once all endpoints are in service; the body has the state of each."""
        states = {name: endpoint.status for name, endpoint in self._hosting.endpoints.items()}
        well = all(status not in {"Creating", "Failed"} for status in states.values())
        status = HTTPStatus.OK if well else HTTPStatus.SERVICE_UNAVAILABLE
        return HttpResponse(status, json.dumps({"endpoints": states}).encode())

    def _metrics_page(self) -> HttpResponse:
        headers = {"Content-Type": "text/plain; version=0.0.4; charset=utf-8"}
        return HttpResponse(HTTPStatus.OK, self._metrics.exposition(), headers)

    def _shadows_page(self) -> HttpResponse:
        return HttpResponse(HTTPStatus.OK, json.dumps({"shadows": self._companions.reports()}).encode())
