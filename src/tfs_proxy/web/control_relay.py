"""What workers pass on to the control API if no nginx does: the list of models, and the server in /v2."""

import re
from collections.abc import Callable
from typing import Any

import falcon

from tfs_proxy.observe.routes import ALL_STATISTICS, SERVED_MODELS, SERVER, SHARED_MEMORY
from tfs_proxy.web.body import BodyReader
from tfs_proxy.wire.http_messages import HttpResponse

AskControlApi = Callable[[str, str, bytes], HttpResponse]
"""Method, path and body of a request -> the control API's answer."""

RELAYED = re.compile(
    rf"(?:{SERVED_MODELS}|{SHARED_MEMORY}|{SERVER}(?:/|/health/(?:live|ready)|/repository/.+|/models/(?:[^/]+/)*stats)?)\Z"
)
EXACT = (SERVED_MODELS, ALL_STATISTICS)
"""Paths that would otherwise be a model's, or the model server's."""

ANSWERED = ("Content-Type", "Allow")


class ControlRelay:
    """A sink for `RELAYED`, and the resource of `EXACT`."""

    method = "GET"

    def __init__(self, ask: AskControlApi, bodies: BodyReader) -> None:
        self._ask = ask
        self._bodies = bodies

    def __call__(self, req: falcon.Request, resp: falcon.Response, **_: Any) -> None:
        """Pass one request on, and the answer back."""
        with self._bodies.budget(req) as budget:
            body = self._bodies.read(req, budget)
        answer = self._ask("GET" if req.method == "HEAD" else req.method, req.path, body)
        resp.status, resp.data, resp.content_type = answer.status, answer.body, None
        for name in ANSWERED:
            if (value := answer.header(name)) is not None:
                resp.set_header(name, value)

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        """As the sink."""
        self(req, resp)

    on_head = on_get


def add_relay(
    app: "falcon.App[falcon.Request, falcon.Response]", ask: AskControlApi, bodies: BodyReader
) -> None:
    """Publish by ``app`` what the control API answers."""
    relay = ControlRelay(ask, bodies)
    for path in EXACT:
        app.add_route(path, relay)
    app.add_sink(relay, RELAYED)
