"""The falcon app of a worker: routes to resources, everything they need handed in."""

from typing import Any

import falcon

from tfs_proxy.deployment import Deployment
from tfs_proxy.script.load import Script
from tfs_proxy.upstream.base import Upstream
from tfs_proxy.web.errors import install
from tfs_proxy.web.invocations import ModelInvocations, ScriptInvocations
from tfs_proxy.web.ping import Ping, PingResource


class KnownMethods:
    """Middleware: 405 for a method that HTTP does not know, where falcon would say 400."""

    def process_resource(
        self, req: falcon.Request, _resp: falcon.Response, resource: Any, _params: dict[str, Any]
    ) -> None:
        """Look at the method before falcon's responder does."""
        if req.method not in falcon.COMBINED_METHODS:
            raise falcon.HTTPMethodNotAllowed([resource.method])


def create_app(
    deployment: Deployment, upstream: Upstream, script: Script | None = None, *, ping: Ping
) -> "falcon.App[falcon.Request, falcon.Response]":
    """A WSGI app that serves ``deployment``: ``POST /invocations`` and ``GET /ping``.

    ``upstream`` reaches the model servers, ``script`` is the user's, ``ping`` asks the control door.
    Whatever goes wrong is answered as ``{"error": text}``.
    """
    app = falcon.App(middleware=[KnownMethods()])
    install(app)
    if script is None:
        app.add_route("/invocations", ModelInvocations(deployment, upstream))
    else:
        from tfs_proxy.script.call import ScriptCaller

        own_errors = (falcon.HTTPError, falcon.HTTPStatus)
        caller = ScriptCaller(script, upstream, deployment.request_timeout_seconds, own_errors)
        app.add_route("/invocations", ScriptInvocations(deployment, caller))
    app.add_route("/ping", PingResource(ping))
    return app
