"""Application of a worker: falcon routes to resources, which get everything they need."""

from collections.abc import Collection, Container
from contextlib import ExitStack
from functools import partial
from threading import Thread
from typing import TYPE_CHECKING, Any

import falcon

from tfs_proxy.serving.plane import DataPlane
from tfs_proxy.serving.script.deadline import DeadlineWatch
from tfs_proxy.serving.script.load import Script
from tfs_proxy.serving.upstream.for_deployment import ForDeployment
from tfs_proxy.serving.upstream.interface import Upstream
from tfs_proxy.values.deployment import BY_SCRIPT, OFF, Deployment
from tfs_proxy.values.memory import Ledger
from tfs_proxy.values.signature import Target
from tfs_proxy.wire.error_body import being_unloaded
from tfs_proxy.wire.guard import PASSES, PREFLIGHT, REFUSALS, Guard
from tfs_proxy.wire.header_names import SERVED_NAME, wsgi_name
from tfs_proxy.wire.media_types import JSON
from tfs_proxy.wire.routes import EXECUTION_PARAMETERS, INVOCATIONS, METRICS, OPENAPI, PING
from tfs_proxy.worker import console
from tfs_proxy.worker.body import BodyReader
from tfs_proxy.worker.errors import install
from tfs_proxy.worker.inference_answers import Caller, ModelInference, ScriptInference
from tfs_proxy.worker.inference_resources import Inference, Serves, add_routes
from tfs_proxy.worker.invocations import ModelInvocations, ScriptInvocations
from tfs_proxy.worker.serving_api import PREFIX, AskControlApi, PassOn, ServingApi, add_relay
from tfs_proxy.worker.sessions import InvocationsResource, SessionInvocations
from tfs_proxy.worker.status import (
    ExecutionParameters,
    FetchMetrics,
    MetricsResource,
    OpenApiResource,
    Ping,
    PingResource,
)

if TYPE_CHECKING:
    from tfs_proxy.serving.script.script_model import ScriptModel

_NAME = wsgi_name(SERVED_NAME)

OWN_ERRORS = (falcon.HTTPError, falcon.HTTPStatus)
"""Exceptions of the web framework that a script may raise; they are answered unchanged."""


class KnownMethods:
    """Middleware: 405 for a method that HTTP does not know; falcon would answer 400."""

    def process_resource(
        self, req: falcon.Request, _resp: falcon.Response, resource: Any, _params: dict[str, Any]
    ) -> None:
        if req.method not in falcon.COMBINED_METHODS:
            raise falcon.HTTPMethodNotAllowed([resource.method])


class CertainTargets:
    """Middleware: 400 without the Host of HTTP/1.1, 404 for ``//ping``, which falcon takes for /ping.

    ``behind_nginx`` the former is nginx's to refuse: a request that it passes on without a Host came in
    HTTP/1.0.
    """

    def __init__(self, *, behind_nginx: bool) -> None:
        self._needs_host = not behind_nginx

    def process_request(self, req: falcon.Request, _resp: falcon.Response) -> None:
        if self._needs_host and req.env.get("SERVER_PROTOCOL") == "HTTP/1.1" and "HTTP_HOST" not in req.env:
            raise falcon.HTTPBadRequest(description="the request has no Host header")
        if req.path.startswith("//"):
            raise falcon.HTTPRouteNotFound


class Guarded:
    """Middleware: the guard against other sites' pages, which may find the workers' own port, too.

    ``behind_nginx`` the headers of answers are nginx's to set.
    """

    def __init__(self, guard: Guard, *, behind_nginx: bool) -> None:
        self._guard, self._behind_nginx = guard, behind_nginx

    def process_request(self, req: falcon.Request, _resp: falcon.Response) -> None:
        verdict = self._guard.verdict(req.method, req.path, req.get_header)
        if verdict == PREFLIGHT:
            raise falcon.HTTPStatus(204, self._guard.answer_headers(verdict, req.get_header))
        if verdict:
            raise falcon.HTTPForbidden(description=REFUSALS[verdict])

    def process_response(self, req: falcon.Request, resp: falcon.Response, *_: object) -> None:
        if not self._behind_nginx:
            resp.set_headers(self._guard.answer_headers(PASSES, req.get_header))


class OnlyOwnModels:
    """Middleware: 503 for a request to another archive, which was removed after nginx had looked it up."""

    def __init__(self, names: Collection[str]) -> None:
        self._names = names

    def process_request(self, req: falcon.Request, _resp: falcon.Response) -> None:
        name = req.env.get(_NAME)
        if name is not None and name not in self._names:
            raise falcon.HTTPServiceUnavailable(description=being_unloaded(name))


class ContainerApp(falcon.App[falcon.Request, falcon.Response]):
    """Application with its open resources, and the ``watch`` over the calls of its script.

    ``known`` has the models by which requests are counted. ``first_call`` runs if the model has recorded
    requests.
    """

    first_call: Thread | None = None

    def __init__(self, watch: DeadlineWatch, known: Container[str], **options: Any) -> None:
        super().__init__(**options)
        self.watch, self.known = watch, known
        self.held = ExitStack()

    def close(self) -> None:
        """Close the app after its last request: the script's ``close()``, and the rest; idempotent."""
        self.held.close()


def create_app(
    deployment: Deployment,
    upstream: Upstream | None,
    script: "Script | ScriptModel | None" = None,
    *,
    ping: Ping,
    pass_on: PassOn | None = None,
    ledger: Ledger | None = None,
    metrics: FetchMetrics | None = None,
    ask_control_api: AskControlApi | None = None,
    serves: Serves | None = None,
    owns_upstream: bool = True,
) -> ContainerApp:
    """Make a WSGI app that serves the models of ``deployment``: ``POST /invocations`` and ``GET /ping``.

    ``upstream`` sends requests to the model servers, None if the script is the model; ``ping``, ``metrics``
    and ``ask_control_api`` ask the control API. ``pass_on`` asks TF Serving's REST API; without it, that is
    not published. ``ledger`` bounds the memory that the requests of all workers take. All errors are answered
    as ``{"error": text}``. The script's ``init(context)`` has run, or its model is loaded, before this
    returns; raises ScriptLoadError if that failed. ``close`` closes ``upstream`` too if the app
    ``owns_upstream``.
    """
    app, bodies, plane = _app(deployment, ping, metrics), BodyReader(deployment, ledger), None
    if upstream is not None:
        if owns_upstream:
            app.held.callback(upstream.close)
        own = ForDeployment(upstream, deployment)
        plane = DataPlane(own, deployment.csv_columns, one_line=deployment.is_batch)
    if script is not None:
        inference: Inference = _add_script(app, script, deployment, bodies, plane)
    elif plane is not None:
        of_model = ModelInference(bodies, plane)
        _add_invocations(app, deployment, ModelInvocations(deployment, bodies, plane, of_model))
        inference = of_model
    converts = plane is not None and getattr(script, "body_reader", None) is None
    asked = partial(plane.signature, Target(deployment.default_model)) if plane and converts else None
    app.add_route(EXECUTION_PARAMETERS.path, ExecutionParameters(deployment.transforms, asked))
    if deployment.doors.open_inference != OFF:
        add_routes(app, deployment, inference, None if plane is None else plane.signature, serves)
    signatures_of = plane.signatures_of if plane else lambda _: {}
    app.add_route(OPENAPI.path, OpenApiResource(deployment, signatures_of, script))
    console.add_routes(app, deployment, plane, None if script is None else script.description)
    if pass_on is not None:
        app.add_sink(ServingApi(bodies, pass_on), PREFIX)
    if ask_control_api is not None:
        add_relay(app, ask_control_api, bodies)
    return app


def _add_script(
    app: ContainerApp,
    script: "Script | ScriptModel",
    deployment: Deployment,
    bodies: BodyReader,
    plane: DataPlane | None,
) -> Inference:
    """Routes invocations to a script, which has begun then; returns the handler of inferences."""
    in_parts = False
    if plane is None:
        from tfs_proxy.serving.script.script_model import ScriptModel, ScriptModelCaller

        assert isinstance(script, ScriptModel)  # noqa: S101 - there is no model server
        accept = deployment.default_accept or JSON
        folder = deployment.script_model or ""
        caller: Caller = ScriptModelCaller(script, folder, accept, OWN_ERRORS, app.watch)
    else:
        from tfs_proxy.serving.script.context import WorkerModels
        from tfs_proxy.serving.script.handlers import ScriptCaller

        assert isinstance(script, Script)  # noqa: S101 - there is a model server
        models = WorkerModels(
            plane,
            deployment.models,
            deployment.default_model,
            deployment.times.request_seconds,
            deployment.model_dir,
        )
        caller = ScriptCaller(script, models, OWN_ERRORS, app.watch)
        in_parts = script.reads_in_parts
    app.held.callback(caller.close)
    caller.begin()
    inference = ScriptInference(deployment, bodies, caller)
    if in_parts:
        from tfs_proxy.worker.body_in_parts import InvocationsInParts

        invocations: ScriptInvocations = InvocationsInParts(deployment, bodies, caller, inference, app.watch)
    else:
        invocations = ScriptInvocations(deployment, bodies, caller, inference)
    _add_invocations(app, deployment, invocations)
    if plane is None or deployment.doors.open_inference == BY_SCRIPT:
        return inference
    return ModelInference(bodies, plane)


def _add_invocations(app: ContainerApp, deployment: Deployment, resource: InvocationsResource) -> None:
    """Route invocations to ``resource``, through the sessions if there are any."""
    if deployment.sessions is not None:
        from tfs_proxy.serving.session_store import SessionStore

        store = SessionStore(deployment.sessions, deployment.loaded_as or "")
        app.held.callback(store.close)
        resource = SessionInvocations(store, resource)
    app.add_route(INVOCATIONS.path, resource)


def _app(deployment: Deployment, ping: Ping, metrics: FetchMetrics | None) -> ContainerApp:
    watch = DeadlineWatch(deployment.times.script_seconds, deployment.script_folder)
    behind_nginx = not deployment.observation.counts_requests
    guard = Guard(deployment.guard.origins, deployment.guard.hosts, deployment.guard.is_local)
    targets, guarded = CertainTargets(behind_nginx=behind_nginx), Guarded(guard, behind_nginx=behind_nginx)
    middleware: list[object] = [targets, guarded, KnownMethods()]
    if deployment.loaded_as is not None:
        middleware.append(OnlyOwnModels({deployment.loaded_as, *deployment.models}))
    known = {deployment.default_model, *deployment.models}
    app = ContainerApp(watch, known, middleware=middleware)
    install(app, one_of_many=deployment.loaded_as is not None)
    app.add_route(PING.path, PingResource(ping))
    if metrics is not None:
        app.add_route(METRICS.path, MetricsResource(metrics))
    return app
