"""Application of a worker: falcon routes to resources, which get everything they need."""

from collections.abc import Collection, Container
from contextlib import ExitStack
from functools import partial
from threading import Thread
from typing import TYPE_CHECKING, Any

import falcon

from tfs_proxy.observe.request_record import check_wait
from tfs_proxy.serving.plane import DataPlane
from tfs_proxy.serving.script.caller import Functions, ScriptCaller
from tfs_proxy.serving.script.deadline import DeadlineWatch
from tfs_proxy.serving.script.health import ScriptHealth
from tfs_proxy.serving.script.load import Script
from tfs_proxy.serving.script.runner import ScriptRunner
from tfs_proxy.serving.upstream.for_deployment import ForDeployment
from tfs_proxy.serving.upstream.interface import Upstream
from tfs_proxy.settings.rows import LONGER_SECONDS
from tfs_proxy.values.deployment import BY_SCRIPT, OFF, Deployment
from tfs_proxy.values.memory import Ledger
from tfs_proxy.values.signature import Target
from tfs_proxy.wire.error_body import being_unloaded
from tfs_proxy.wire.guard import PASSES, PREFLIGHT, REFUSALS, Guard
from tfs_proxy.wire.header_names import SERVED_NAME, wsgi_name
from tfs_proxy.wire.routes import EXECUTION_PARAMETERS, INVOCATIONS, OPENAPI
from tfs_proxy.worker import console
from tfs_proxy.worker.body import BodyReader
from tfs_proxy.worker.errors import install
from tfs_proxy.worker.inference_resources import Serves, add_routes
from tfs_proxy.worker.invocations import ModelInvocations, ScriptInvocations
from tfs_proxy.worker.serving_api import PREFIX, AskControlApi, PassOn, ServingApi, add_relay
from tfs_proxy.worker.status import ExecutionParameters, OpenApiResource

if TYPE_CHECKING:
    from tfs_proxy.serving.script.script_model import ScriptModel

_NAME = wsgi_name(SERVED_NAME)

OWN_ERRORS = (falcon.HTTPError, falcon.HTTPStatus)
"""Exceptions of the web framework that a script may raise; they are answered unchanged."""


class Entrance:
    """Middleware in front of all resources, with what nginx does itself left out behind it.

    It refuses what falcon would take or answer otherwise: a method that HTTP does not know (405), HTTP/1.1
    without a Host (400), ``//ping`` (404). The guard against other sites' pages stands here, too, as they may
    find the workers' own port. A POST that has waited for too long is not begun. One of many models answers
    503 to a request for another one, which was removed after nginx had looked it up.
    """

    def __init__(self, deployment: Deployment) -> None:
        # Behind nginx a request without a Host came in HTTP/1.0.
        self._behind_nginx = not deployment.observation.counts_requests
        self._guard = Guard(deployment.guard.origins, deployment.guard.hosts, deployment.guard.is_local)
        own = deployment.loaded_as
        self._names: Collection[str] | None = None if own is None else {own, *deployment.models}
        self._wait_seconds = deployment.times.wait_seconds

    def process_request(self, req: falcon.Request, _resp: falcon.Response) -> None:
        env = req.env
        if req.method == "POST":
            check_wait(self._wait_seconds)
        if not self._behind_nginx and env.get("SERVER_PROTOCOL") == "HTTP/1.1" and "HTTP_HOST" not in env:
            raise falcon.HTTPBadRequest(description="the request has no Host header")
        if req.path.startswith("//"):
            raise falcon.HTTPRouteNotFound
        verdict = self._guard.verdict(req.method, req.path, req.get_header)
        if verdict == PREFLIGHT:
            raise falcon.HTTPStatus(204, self._guard.answer_headers(verdict, req.get_header))
        if verdict:
            raise falcon.HTTPForbidden(description=REFUSALS[verdict])
        if self._names is not None and (name := env.get(_NAME)) is not None and name not in self._names:
            raise falcon.HTTPServiceUnavailable(description=being_unloaded(name))

    def process_resource(
        self, req: falcon.Request, _resp: falcon.Response, resource: Any, _params: dict[str, Any]
    ) -> None:
        if req.method not in falcon.COMBINED_METHODS:
            raise falcon.HTTPMethodNotAllowed([resource.method])

    def process_response(self, req: falcon.Request, resp: falcon.Response, *_: object) -> None:
        if not self._behind_nginx:
            resp.set_headers(self._guard.answer_headers(PASSES, req.get_header))


class ContainerApp(falcon.App[falcon.Request, falcon.Response]):
    """Application with its open resources, ``held`` to its end; a `WorkerApp`."""

    first_call: Thread | None = None
    health: ScriptHealth | None = None

    def __init__(self, watch: DeadlineWatch, known: Container[str], **options: Any) -> None:
        super().__init__(**options)
        self.watch = watch
        self.known = known
        self.held = ExitStack()

    def close(self) -> None:
        """Close the app after its last request: the script's ``close()``, and the rest; idempotent."""
        self.held.close()


def create_app(
    deployment: Deployment,
    upstream: Upstream | None,
    script: "Script | ScriptModel | None" = None,
    *,
    pass_on: PassOn | None = None,
    ledger: Ledger | None = None,
    ask_control_api: AskControlApi | None = None,
    serves: Serves | None = None,
    owns_upstream: bool = True,
) -> ContainerApp:
    """Make a WSGI app that serves the models of ``deployment``: ``POST /invocations`` and more.

    ``upstream`` sends requests to the model servers, None if the script is the model; ``ask_control_api``
    answers what the supervisor knows, such as ``GET /ping``. ``pass_on`` asks TF Serving's REST API; without
    it, that is not published. ``ledger`` bounds the memory that the requests of all workers take. All errors
    are answered as ``{"error": text}``. The script's ``init(context)`` has run, or its model is loaded,
    before this returns; raises ScriptLoadError if that failed. ``close`` closes ``upstream`` too if the app
    ``owns_upstream``.
    """
    times = deployment.times
    setting = f"TFS_PROXY_REQUEST_TIMEOUT_SECONDS={times.request_seconds:g}"
    if not times.request_seconds < times.script_seconds <= times.request_seconds + LONGER_SECONDS:
        setting = "by the timeouts of gunicorn and nginx"
    watch = DeadlineWatch(times.script_seconds, deployment.script_folder, setting)
    known = {deployment.default_model, *deployment.models}
    app = ContainerApp(watch, known, middleware=[Entrance(deployment)])
    install(app, one_of_many=deployment.loaded_as is not None)
    bodies = BodyReader(deployment, ledger)
    plane = None
    if upstream is not None:
        if owns_upstream:
            app.held.callback(upstream.close)
        own = ForDeployment(upstream, deployment)
        plane = DataPlane(own, deployment.csv_columns, one_line=deployment.is_batch)
    invocations = _invocations(app, script, deployment, bodies, plane)
    app.add_route(INVOCATIONS.path, invocations)
    converts = plane is not None and getattr(script, "body_reader", None) is None
    asked = partial(plane.signature, Target(deployment.default_model)) if plane and converts else None
    app.add_route(EXECUTION_PARAMETERS.path, ExecutionParameters(deployment.transforms, asked))
    if deployment.doors.open_inference != OFF:
        inference = invocations
        if plane is not None and script is not None and deployment.doors.open_inference != BY_SCRIPT:
            inference = ModelInvocations(deployment, bodies, plane)
        signature = None if plane is None else plane.signature
        ask = None if app.health is None else ask_control_api
        add_routes(app, deployment, inference, signature, serves, ask)
    signatures_of = plane.signatures_of if plane else lambda _: {}
    app.add_route(OPENAPI.path, OpenApiResource(deployment, signatures_of, script))
    console.add_routes(app, deployment, plane, None if script is None else script.description)
    if pass_on is not None:
        app.add_sink(ServingApi(bodies, pass_on), PREFIX)
    if ask_control_api is not None:
        add_relay(app, ask_control_api, bodies)
    return app


def _invocations(
    app: ContainerApp,
    script: "Script | ScriptModel | None",
    deployment: Deployment,
    bodies: BodyReader,
    plane: DataPlane | None,
) -> ModelInvocations | ScriptInvocations:
    """Make the resource of a model, or of a script, which has begun then."""
    if script is None:
        assert plane is not None  # noqa: S101 - without a script, a model server answers
        return ModelInvocations(deployment, bodies, plane)
    runner = ScriptRunner(script.path, OWN_ERRORS, app.watch)
    in_parts = False
    if isinstance(script, Script):
        from tfs_proxy.serving.script.handlers import Handlers

        assert plane is not None  # noqa: S101 - handlers ask a model server
        functions: Functions = Handlers(script, runner, plane, deployment)
        in_parts = script.reads_in_parts
    else:
        from tfs_proxy.serving.script.script_model import ModelFunctions

        functions = ModelFunctions(script, runner, deployment)
    caller = ScriptCaller(functions)
    app.held.callback(caller.close)
    caller.begin()
    app.health = caller.health
    if in_parts:
        from tfs_proxy.worker.body_in_parts import InvocationsInParts

        return InvocationsInParts(deployment, bodies, caller, app.watch)
    return ScriptInvocations(deployment, bodies, caller)
