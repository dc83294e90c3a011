"""Requests that are passed on: TF Serving's REST API to the model server, others to the control API."""

import json
import re
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import quote, urlsplit

import falcon

from tfs_proxy.serving.upstream.interface import ModelAnswer
from tfs_proxy.serving.upstream.rest import has_available
from tfs_proxy.wire.http_messages import HttpResponse
from tfs_proxy.wire.routes import ONE_ARCHIVE, SERVED_MODELS, SUPERVISOR, TABLE
from tfs_proxy.worker.body import BodyReader

PassOn = Callable[[str, str, bytes | None, Mapping[str, str]], ModelAnswer]
"""Function from method, path, body and headers of a request to the model server's answer."""

PREFIX = re.compile("/v1/", re.IGNORECASE)
METHODS = ("GET", "OPTIONS", "POST")
PASSED = ("Content-Type", "Origin", "Access-Control-Request-Method", "Access-Control-Request-Headers")
"""Headers that the model server reads; an unpacked body has no Content-Encoding."""

STATUS_OF_MODEL = re.compile(rf"{SERVED_MODELS.path}/[^/:?]+(?:\?.*)?", re.IGNORECASE | re.DOTALL)

OF_ONE_HOP = {"connection", "content-length", "date", "keep-alive", "server", "transfer-encoding"}


class ServingApi:
    """Sink for every path below ``/v1/``, as the client wrote it."""

    def __init__(self, bodies: BodyReader, pass_on: PassOn) -> None:
        self._bodies = bodies
        self._pass_on = pass_on

    def __call__(self, req: falcon.Request, resp: falcon.Response, **_: Any) -> None:
        """Pass a request on, and the model server's answer back."""
        if req.method not in METHODS:
            raise falcon.HTTPMethodNotAllowed(METHODS)
        # As it was sent, with its query, not decoded; of an absolute URI the part after the host.
        raw = str(req.env.get("RAW_URI") or quote(req.path))
        path = raw if raw.startswith("/") else urlsplit(raw)._replace(scheme="", netloc="").geturl()
        if not PREFIX.match(path):  # it has ``..``, which the model server does not follow
            raise falcon.HTTPRouteNotFound
        headers = {name: value for name in PASSED if (value := req.get_header(name)) is not None}
        with self._bodies.budget() as budget:
            body = self._bodies.read(req, budget) or (b"" if req.method == "POST" else None)
            answer = self._pass_on(req.method, path, body, headers)
        resp.status = answer.status
        resp.data = answer.body
        resp.content_type = None
        if req.method == "GET" and answer.ok and STATUS_OF_MODEL.fullmatch(path):
            # KServe's ``ready``, too: true if a version of it serves.
            fields = {**json.loads(answer.body), "ready": has_available(answer.body)}
            resp.data = json.dumps(fields, indent=1).encode() + b"\n"
        for name, value in answer.headers.items():
            if name.lower() not in OF_ONE_HOP:
                resp.set_header(name, value)


AskControlApi = Callable[[str, str, bytes, Mapping[str, str]], HttpResponse]
"""Function from method, path, body and headers of a request to the control API's answer."""

_RELAYED = (each for each in TABLE if each.sentence and each.answered_by[ONE_ARCHIVE] == SUPERVISOR)
RELAYED = re.compile(rf"(?:{'|'.join(route.regex() for route in _RELAYED)})\Z")
ANSWERED = ("Content-Type", "Allow")


def add_relay(
    app: "falcon.App[falcon.Request, falcon.Response]", ask: AskControlApi, bodies: BodyReader
) -> None:
    """Publish the control API's answers by ``app``."""

    def relay(req: falcon.Request, resp: falcon.Response, **_: Any) -> None:
        with bodies.budget() as budget:
            body = bodies.read(req, budget)
        headers = {"Accept": accept} if (accept := req.get_header("Accept")) else {}
        answer = ask("GET" if req.method == "HEAD" else req.method, req.path, body, headers)
        resp.status = answer.status
        resp.data = answer.body
        resp.content_type = None
        for name in ANSWERED:
            if (value := answer.header(name)) is not None:
                resp.set_header(name, value)

    app.add_sink(relay, RELAYED)
