"""The control API: the supervisor's own HTTP, which answers however busy the workers are.

It is an ASGI callable in three places. The unix socket for workers has every route; the one to
which nginx passes clients' requests has none of the workers' own; and on the sockets that workers will
accept from, until they take over, the ``early`` ones are answered, and all others get 503 with the reason.
"""

import asyncio
import json
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Protocol
from urllib.parse import unquote

from msgspec.json import decode, encode
from msgspec.structs import replace

from tfs_proxy.observe.logs.access import reason_text
from tfs_proxy.observe.logs.reasons import own_reason
from tfs_proxy.observe.metric import MeasuredMetric
from tfs_proxy.observe.request_counts import FinishedRequest
from tfs_proxy.observe.request_record import chosen_id
from tfs_proxy.run import grpc_health
from tfs_proxy.run.host.sockets import Listener
from tfs_proxy.run.readiness import Readiness
from tfs_proxy.run.scraping import OutsideMetrics
from tfs_proxy.values.deployment import Deployment, WorkerOrder, WorkerPhase, WorkerState
from tfs_proxy.wire import routes as paths
from tfs_proxy.wire.error_body import error_text
from tfs_proxy.wire.error_status import CLIENT_GONE
from tfs_proxy.wire.header_names import IN_FLIGHT, INFERENCE_ID, REQUEST_ID, STAGE_TIMES
from tfs_proxy.wire.http_messages import HttpRequest, HttpResponse, StreamedResponse
from tfs_proxy.wire.http_server import AsgiApp, HttpServer, Message, Receive, Respond, Send, app_of, head_of
from tfs_proxy.wire.routes import GET, PROBES, Handlers, answer_by, refused_method

log = logging.getLogger(__name__)

Measure = Callable[[Mapping[str, str]], Iterable[MeasuredMetric]]

CountRequest = Callable[[FinishedRequest, str], None]
"""Counts and logs a request of which neither nginx nor a worker writes the line, with its id."""

Answer = Callable[[HttpRequest], Awaitable[HttpResponse]]

HOLD_SECONDS = 0.25
"""Longest wait of a ready worker for its answer: it must handle its signals."""

MAX_BODY_BYTES = 64 * 1024
SMALL = partial(app_of, body_bytes=MAX_BODY_BYTES)
"""Maker of applications for requests with small bodies."""


class ControlledStack(Protocol):
    """The stack that workers belong to, or the run that clients ask about."""

    @property
    def readiness(self) -> Readiness:
        """Its readiness, which ``/ping`` shows."""

    @property
    def deployment(self) -> Deployment | None:
        """Its deployment; None until that is known."""


class ControlApi:
    """Answers the workers of ``stack``, and clients from the readiness of the ``run``, or else of that stack.

    ``routes`` are those of others. With ``of_run`` it has only the workers' routes, and asks that one for all
    others. ``clients`` makes the application for clients, `for_clients`.
    """

    def __init__(
        self,
        stack: ControlledStack,
        routes: Handlers | None = None,
        *,
        run: ControlledStack | None = None,
        measure: Measure = lambda _headers: (),
        outside: OutsideMetrics | None = None,
        of_run: Answer | None = None,
        clients: Callable[[Respond], AsgiApp] = SMALL,
    ) -> None:
        self._stack = stack
        self._run = run or stack
        self._measure = measure
        self._outside = outside or OutsideMetrics()
        self._of_run = of_run
        self._released = asyncio.Event()
        table: dict[paths.Route, paths.Handler] = {
            paths.DEPLOYMENT: self._deployment,
            paths.SETTLED: self._settled,
            paths.HEARTBEAT: self._hear_worker,
        }
        if of_run is None:
            of_clients = {
                paths.PING: self._ping,
                paths.LIVENESS: self._live,
                paths.METRICS: self._metrics,
            }
            table |= {**(routes or {}), **of_clients, paths.HEALTH_CHECK: self._check_health}
        self._routes = table
        self._client_routes = {
            route: table[route] for route in table if route.caller is not paths.Caller.WORKER
        }
        self._early_routes = {route: table[route] for route in table if route.early}
        self._server = HttpServer(SMALL(self.respond))
        self.for_clients = clients(self.respond_to_client)
        self._server_for_clients = HttpServer(self.for_clients)
        self._standing_in: HttpServer | None = None

    @property
    def _readiness(self) -> Readiness:
        return self._run.readiness

    async def open(self, path: Path, for_clients: Path | None = None) -> None:
        """Listens on unix sockets: for workers, and for what nginx passes on."""
        await self._server.listen_at(path)
        if for_clients is not None:
            await self._server_for_clients.listen_at(for_clients)

    async def stand_in(self, listeners: Sequence[Listener], count: CountRequest | None) -> None:
        """Answers 503 on ``listeners`` until `release`; the sockets themselves stay open."""
        early = app_of(self.respond_early)
        self._standing_in = HttpServer(early if count is None else counted(early, count))
        await self._standing_in.listen([listener.dup() for listener in listeners])

    def release(self) -> None:
        """Leaves the listeners to the workers, which may accept from now on."""
        if self._standing_in is not None:
            self._standing_in.close()
        self._released.set()

    def close(self) -> None:
        self.release()
        self._server_for_clients.close()
        self._server.close()

    async def respond(self, request: HttpRequest) -> HttpResponse:
        """Requests of workers."""
        return await self._respond(self._routes, request)

    async def respond_to_client(self, request: HttpRequest) -> HttpResponse | StreamedResponse:
        """Clients' requests from nginx, which must not reach inner routes."""
        if request.path == paths.HEALTH_WATCH.path and self._of_run is None:
            return grpc_health.watch(lambda: self._readiness, request.body)
        return await self._respond(self._client_routes, request)

    async def _respond(self, handlers: Handlers, request: HttpRequest) -> HttpResponse:
        answer = await answer_by(handlers, request)
        if answer is None and self._of_run is not None:
            answer = await self._of_run(request)
        elif answer is None:
            is_read = request.method in GET
            answer = nothing_at(request.path) if is_read else refused_method(request.method, GET)
        return _with_reason(request, answer)

    async def respond_early(self, request: HttpRequest) -> HttpResponse:
        """Clients' requests before the workers take over: the reason, and the connection is closed."""
        answer = await answer_by(self._early_routes, request)
        if answer is None:
            answer = _ok_without(self._readiness.reason() or "starting")
        return replace(_with_reason(request, answer), keeps_connection=False)

    async def _ping(self, _: HttpRequest) -> HttpResponse:
        return _ok_without(self._readiness.reason())

    async def _live(self, _: HttpRequest) -> HttpResponse:
        return _ok_without(self._readiness.broken())

    async def _check_health(self, request: HttpRequest) -> HttpResponse:
        return grpc_health.check(self._readiness, request.body)

    async def _settled(self, _: HttpRequest) -> HttpResponse:
        return _ok_without(self._stack.readiness.away())

    async def _deployment(self, _: HttpRequest) -> HttpResponse:
        deployment = self._stack.deployment
        if deployment is None:
            return _ok_without(self._stack.readiness.steps.current)
        return HttpResponse(HTTPStatus.OK, deployment.to_json())

    async def _hear_worker(self, request: HttpRequest) -> HttpResponse:
        """Notes the state of a worker; a ready one waits for the release."""
        try:
            state = decode(request.body, type=WorkerState)
        except (ValueError, RecursionError):  # a script can write to the socket, too
            return HttpResponse.error(HTTPStatus.BAD_REQUEST, "not the state of a worker")
        self._stack.readiness.heartbeats.hear(state)
        if state.phase is WorkerPhase.SERVES:
            with suppress(TimeoutError):
                async with asyncio.timeout(HOLD_SECONDS):
                    await self._released.wait()
        order = WorkerOrder.WAIT
        if self._released.is_set():
            heartbeats = self._stack.readiness.heartbeats
            asks = state.phase is WorkerPhase.SERVES and heartbeats.take_health_turn()
            order = WorkerOrder.ASK if asks else WorkerOrder.SERVE
            order = WorkerOrder.LEAVE if heartbeats.let_leave(state.pid) else order
        return HttpResponse(HTTPStatus.OK, encode(order))

    async def _metrics(self, request: HttpRequest) -> HttpResponse:
        await self._outside.refresh()
        # Importing it takes 70 ms, which no start should wait for.
        from tfs_proxy.observe.exposition import expose

        measured = self._measure(request.headers)
        text = expose(measured, request.headers.get("accept"), self._outside.families())
        return HttpResponse(HTTPStatus.OK, text.body, {"Content-Type": text.content_type})


def served_models(served: Callable[[], Collection[str] | None]) -> Handlers:
    """The list of models for KServe's clients; ``served`` has those of TF Serving's REST API, if it is on."""

    async def models(request: HttpRequest) -> HttpResponse:
        names = served()
        if names is None:
            return nothing_at(request.path)
        return HttpResponse(HTTPStatus.OK, json.dumps({"models": sorted(names)}).encode())

    return {paths.SERVED_MODELS: models}


def nothing_at(path: str) -> HttpResponse:
    return HttpResponse.error(HTTPStatus.NOT_FOUND, f"there is nothing at {path}")


def _ok_without(reason: str | None) -> HttpResponse:
    if reason is None:
        return HttpResponse(HTTPStatus.OK)
    return HttpResponse.error(HTTPStatus.SERVICE_UNAVAILABLE, reason)


def _with_reason(request: HttpRequest, answer: HttpResponse) -> HttpResponse:
    """The answer; with the reason of a refusal, unless it brings one, for its line in the log."""
    if answer.status < HTTPStatus.BAD_REQUEST or request.path in PROBES:
        return answer
    reason = reason_text(own_reason(error_text(answer.body) or ""))
    return replace(answer, headers={STAGE_TIMES: reason, **answer.headers})


def counted(app: AsgiApp, count: CountRequest) -> AsgiApp:
    """Make an ASGI application that does for ``app`` what nginx does elsewhere: ids, and counts."""

    async def counting(scope: Message, receive: Receive, send: Send) -> None:
        request = head_of(scope)
        inference_id, own_id = (request.headers.get(name.lower()) for name in (INFERENCE_ID, REQUEST_ID))
        request_id = chosen_id(inference_id, own_id)
        id_header = (REQUEST_ID.lower().encode(), request_id.encode())
        of_nginx = {name.lower().encode() for name in (REQUEST_ID, IN_FLIGHT)}  # no client speaks for it
        headers = [*(each for each in scope["headers"] if each[0] not in of_nginx), id_header]
        began = time.perf_counter()
        status = CLIENT_GONE
        reason = ""

        async def send_with_id(message: Message) -> None:
            nonlocal status, reason
            if message["type"] == "http.response.start":
                status = message["status"]
                answered = dict(message["headers"])
                reason = unquote(answered.pop(STAGE_TIMES.encode(), b"").decode().rpartition(";")[2])
                message = {**message, "headers": [*answered.items(), id_header]}
            await send(message)

        try:
            await app({**scope, "headers": headers}, receive, send_with_id)
        finally:
            seconds = time.perf_counter() - began
            finished = FinishedRequest(request.method, status, seconds, request.path, reason=reason)
            count(finished, request_id)

    return counting
