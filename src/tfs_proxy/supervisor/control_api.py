"""The control API: the supervisor's own HTTP, which answers however busy the workers are.

On its unix socket it answers ``/ping`` and ``/metrics`` for nginx and workers, ``/deployment``,
``/released``, ``/until-released`` and ``/settled`` for workers, ``/log-level`` for the command of that name,
``/`` and the list of models for KServe, the server's share of the Open Inference Protocol, and with several
models whatever ``models`` answers. On a second one, to which nginx sends what clients ask, there is nothing
at the paths of workers and commands. On the socket that workers will accept from, it answers ``/metrics`` and
the protocol's probes, and 503 with the reason to all else, until they take over.
"""

import asyncio
import json
import logging
import socket
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from msgspec.structs import replace

from tfs_proxy.deployment import Deployment
from tfs_proxy.observe.logs.access import reason_text
from tfs_proxy.observe.logs.reasons import own_reason
from tfs_proxy.observe.metric import MeasuredMetric
from tfs_proxy.observe.request_counts import FinishedRequest
from tfs_proxy.observe.request_record import chosen_id
from tfs_proxy.observe.routes import PROBES, SERVED_MODELS
from tfs_proxy.supervisor.health.readiness import Readiness
from tfs_proxy.supervisor.logs.run_log import PATH as LOG_LEVEL
from tfs_proxy.supervisor.open_inference.api import OpenInferenceApi
from tfs_proxy.supervisor.request_counter import NGINX_COUNT
from tfs_proxy.supervisor.scraping import OutsideMetrics
from tfs_proxy.wire.error_body import error_text, not_allowed
from tfs_proxy.wire.header_names import INFERENCE_ID, REQUEST_ID, STAGE_TIMES
from tfs_proxy.wire.http_messages import HttpRequest, HttpResponse
from tfs_proxy.wire.http_server import HttpServer
from tfs_proxy.wire.server.connection import RequestLimits

log = logging.getLogger(__name__)

Measure = Callable[[Mapping[str, str]], Iterable[MeasuredMetric]]
"""Measures the run for a scrape with these headers."""

Respond = Callable[[HttpRequest], Awaitable[HttpResponse | None]]
"""Answers requests to paths of its own, and returns None for others."""

RELEASED, UNTIL_RELEASED = "/released/", "/until-released/"
"""Behind them stands the process group of the worker that asks; the second is answered at the release."""

INNER = (RELEASED, UNTIL_RELEASED, LOG_LEVEL, "/deployment", "/settled")
"""What paths begin with that are for workers and commands alone."""

HOLD_SECONDS = 0.25
"""How long a worker waits for its answer at most, until it must see to its signals and heartbeats."""

MAX_BODY_BYTES = 64 * 1024
ALLOWED = "GET, HEAD"
OK, BAD_REQUEST, NOT_FOUND, NOT_ALLOWED, UNAVAILABLE = 200, 400, 404, 405, 503


class ControlApi:
    """Answers from `Readiness`; workers get ``deployment`` once it is known, clients what is measured.

    ``served_models`` are those of TF Serving's REST API, None if that is not published. ``serves`` says
    whether the gunicorn of a process group is the one that serves: no other's workers may accept.
    """

    def __init__(
        self,
        readiness: Readiness,
        measure: Measure = lambda _headers: (),
        outside: OutsideMetrics | None = None,
    ) -> None:
        self.readiness = readiness
        self._measure = measure
        self._outside = outside or OutsideMetrics()
        self.deployment: Deployment | None = None
        self._released = asyncio.Event()
        self.serves: Callable[[str], bool] = lambda _group: True
        self.log_level: Callable[[HttpRequest], HttpResponse] = _refused
        self.count_early: Callable[[FinishedRequest, str], None] = lambda _request, _request_id: None
        self.models: Respond | None = None
        self.open_inference: OpenInferenceApi | None = None
        self.served_models: Callable[[], Collection[str] | None] = lambda: None
        self._server = HttpServer(self.respond, RequestLimits(MAX_BODY_BYTES))
        self._for_clients = HttpServer(self.respond_to_client, RequestLimits(MAX_BODY_BYTES))
        self._standing_in = HttpServer(self.respond_early)

    async def open(self, path: Path, for_clients: Path | None = None) -> None:
        """Listen on unix sockets: for workers and commands, and for what nginx passes on."""
        await self._server.open_unix(path)
        if for_clients is not None:
            await self._for_clients.open_unix(for_clients)

    async def stand_in(self, listeners: Sequence[socket.socket]) -> None:
        """Answer 503 on ``listeners`` until `release`; the sockets themselves stay open."""
        for listener in listeners:
            await self._standing_in.open(listener.dup())

    def release(self) -> None:
        """Leave the listeners to the workers, which may accept from now on."""
        self._standing_in.close()
        self._released.set()

    def close(self) -> None:
        """Stop listening; idempotent."""
        self._standing_in.close()
        self._for_clients.close()
        self._server.close()

    async def respond_to_client(self, request: HttpRequest) -> HttpResponse:
        """Requests that nginx passes on: nothing of the run's own is to be had."""
        if request.path.startswith(INNER):
            return _nothing_at(request.path)
        return await self.respond(request)

    async def respond(self, request: HttpRequest) -> HttpResponse:
        """Requests of workers, commands and nginx, which logs why one is refused."""
        answer = await self._respond(request)
        if answer.status < BAD_REQUEST or request.path in PROBES:
            return answer
        reason = reason_text(own_reason(error_text(answer.body) or ""))
        return replace(answer, headers={**answer.headers, STAGE_TIMES: reason})

    async def _respond(self, request: HttpRequest) -> HttpResponse:
        if request.path.startswith(LOG_LEVEL):
            return self.log_level(request)
        answer = await self._answer_of_models(request)
        if answer is not None:
            return answer
        if request.method not in {"GET", "HEAD"}:
            return _refused(request)
        if request.path == "/metrics":
            return await self._metrics(request)
        if request.path.startswith(UNTIL_RELEASED):
            with suppress(TimeoutError):
                async with asyncio.timeout(HOLD_SECONDS):
                    await self._released.wait()
            return self._may_serve(request.path.removeprefix(UNTIL_RELEASED))
        return self._state(request.path)

    def _state(self, path: str) -> HttpResponse:
        match path:
            case "/ping":
                return _ok_without(self.readiness.reason())
            case "/settled":
                return _ok_without(self.readiness.away())
            case "/deployment" if self.deployment is not None:
                return HttpResponse(OK, self.deployment.to_json())
            case "/deployment":
                return _ok_without(self.readiness.step)
            case _ if path.startswith(RELEASED):
                return self._may_serve(path.removeprefix(RELEASED))
            case _:
                return self._state_for_clients(path)

    def _may_serve(self, group: str) -> HttpResponse:
        """Whether the workers of a process group may accept requests."""
        if not self._released.is_set():
            return _ok_without(self.readiness.step)
        return _ok_without(None if self.serves(group) else "other workers serve")

    def _state_for_clients(self, path: str) -> HttpResponse:
        """What KServe's clients look at."""
        names = self.served_models() if path == SERVED_MODELS else None
        if names is not None:
            return HttpResponse(OK, json.dumps({"models": sorted(names)}).encode())
        return _nothing_at(path)

    async def _answer_of_models(self, request: HttpRequest) -> HttpResponse | None:
        """The answer of whoever has models, or of the protocol; None for other paths."""
        answer = None if self.models is None else await self.models(request)
        if answer is None and self.open_inference is not None:
            return await self.open_inference.respond(request)
        return answer

    async def respond_early(self, request: HttpRequest) -> HttpResponse:
        """Requests of clients before the workers take over: the reason, and no connection is kept."""
        own = {name: value for name, value in request.headers.items() if name != NGINX_COUNT}
        request = replace(request, headers=own)  # no client speaks for nginx
        answer = await self._early_answer(request)
        inference_id, own_id = (request.headers.get(name.lower()) for name in (INFERENCE_ID, REQUEST_ID))
        request_id = chosen_id(inference_id, own_id)
        reason = own_reason(error_text(answer.body) or "")
        finished = FinishedRequest(request.method, answer.status, 0.0, request.path, reason=reason)
        self.count_early(finished, request_id)
        headers = {**answer.headers, REQUEST_ID: request_id}
        return replace(answer, headers=headers, keeps_connection=False)

    async def _early_answer(self, request: HttpRequest) -> HttpResponse:
        probed = None if self.open_inference is None else self.open_inference.health(request.path)
        if request.path != "/metrics" and probed is None:
            return HttpResponse.error(UNAVAILABLE, self.readiness.reason() or "starting")
        if request.method not in {"GET", "HEAD"}:
            return _refused(request)
        return probed or await self._metrics(request)

    async def _metrics(self, request: HttpRequest) -> HttpResponse:
        await self._outside.refresh()
        # PERF: it costs 70 ms of a start, which no start should wait for.
        from tfs_proxy.observe.exposition import expose

        measured = self._measure(request.headers)
        text = expose(measured, request.headers.get("accept"), self._outside.families())
        return HttpResponse(OK, text.body, {"Content-Type": text.content_type})


def _nothing_at(path: str) -> HttpResponse:
    return HttpResponse.error(NOT_FOUND, f"there is nothing at {path}")


def _refused(request: HttpRequest) -> HttpResponse:
    return HttpResponse.error(NOT_ALLOWED, not_allowed(request.method, ALLOWED), headers={"Allow": ALLOWED})


def _ok_without(reason: str | None) -> HttpResponse:
    return HttpResponse(OK) if reason is None else HttpResponse.error(UNAVAILABLE, reason)
