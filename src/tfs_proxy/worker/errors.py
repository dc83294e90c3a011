"""Answers to exceptions: `wire.error_status` has the statuses, and every body an ``error``, a sentence."""

import logging
from http import HTTPStatus
from typing import Any

import falcon

from tfs_proxy.observe.logs.reasons import note_refusal
from tfs_proxy.observe.request_record import retry_seconds
from tfs_proxy.serving.script.deadline import Abandoned
from tfs_proxy.serving.script.values import HTTPError
from tfs_proxy.serving.upstream.shortages import raised_by_shortage
from tfs_proxy.values.errors import (
    AnswerTooLarge,
    Overloaded,
    PayloadTooLarge,
    RequestError,
    ScriptFailure,
    UpstreamRefused,
    UpstreamTimeout,
    UpstreamUnavailable,
)
from tfs_proxy.wire.error_body import INTERNAL_ERROR, error_body, not_allowed, nothing_here
from tfs_proxy.wire.error_status import status_of_error
from tfs_proxy.wire.routes import INVOCATIONS
from tfs_proxy.worker.body import AnswerBeforeTheEnd, BrokenBody

log = logging.getLogger(__name__)

BEFORE_THE_END = PayloadTooLarge, Overloaded
"""Errors of requests whose body may not have been read."""


def install(app: "falcon.App[falcon.Request, falcon.Response]", *, one_of_many: bool = False) -> None:
    """Make ``app`` answer every exception with JSON; that of one of many models says if memory is short."""
    app.add_error_handler(Exception, _unforeseen)
    app.add_error_handler(Abandoned, _answered_already)
    app.add_error_handler(RequestError, _request_error)
    if one_of_many:
        app.add_error_handler(ScriptFailure, _script_failure_of_one_of_many)
    app.add_error_handler(falcon.HTTPRouteNotFound, _no_route)
    app.add_error_handler(falcon.HTTPMethodNotAllowed, _wrong_method)
    app.set_error_serializer(_falcon_error)


def status_of(error: RequestError) -> int:
    """HTTP status of ``error``: the script's own, or the table's."""
    return error.status if isinstance(error, HTTPError) else status_of_error(error)


def _write(resp: falcon.Response, status: int, body: bytes, reason: str) -> None:
    note_refusal(reason)
    resp.status = status
    resp.data = body
    resp.text = None
    resp.content_type = falcon.MEDIA_JSON


def _request_error(req: falcon.Request, resp: falcon.Response, error: RequestError, _params: Any) -> None:
    if isinstance(error, UpstreamRefused):
        _write(resp, error.status, error.body, "")  # the reason has been noted
    else:
        # The errors of other protocols have their own shapes.
        details = error.details if req.path == INVOCATIONS.path else ()
        _write(resp, status_of(error), error_body(str(error), details), error.reason)
    if isinstance(error, (UpstreamUnavailable, UpstreamTimeout, AnswerTooLarge)):
        log.warning("answered %s: %s", resp.status, error)
    if isinstance(error, Overloaded):
        resp.set_header("Retry-After", str(retry_seconds()))
    if isinstance(error, (BrokenBody, *BEFORE_THE_END)):
        resp.set_header("Connection", "close")
    if isinstance(error, BEFORE_THE_END) or "may_have_more" in req.context:
        body = resp.data or b""
        resp.data = None
        resp.content_length = len(body)
        resp.stream = AnswerBeforeTheEnd([body], req)


def _script_failure_of_one_of_many(
    req: falcon.Request, resp: falcon.Response, error: ScriptFailure, params: Any
) -> None:
    _request_error(req, resp, error, params)
    if raised_by_shortage(error.__cause__):
        resp.status = HTTPStatus.INSUFFICIENT_STORAGE


def _unforeseen(req: falcon.Request, resp: falcon.Response, error: Exception, _params: Any) -> None:
    log.error("%s %s failed", req.method, req.path, exc_info=error)
    _write(resp, 500, error_body(INTERNAL_ERROR), INTERNAL_ERROR)


def _answered_already(_req: falcon.Request, _resp: falcon.Response, error: Abandoned, _params: Any) -> None:
    """Answer nothing: the worker closes the connection."""
    raise error


def _no_route(
    req: falcon.Request, resp: falcon.Response, _error: falcon.HTTPRouteNotFound, _params: Any
) -> None:
    text, body = nothing_here(req.path)
    _write(resp, 404, body, text)


def _wrong_method(
    req: falcon.Request, resp: falcon.Response, error: falcon.HTTPMethodNotAllowed, _params: Any
) -> None:
    resp.set_headers(error.headers or {})
    allowed = resp.get_header("Allow") or "none"
    body = error_body(not_allowed(req.method, allowed))
    _write(resp, 405, body, not_allowed("this method", allowed))


def _falcon_error(_req: falcon.Request, resp: falcon.Response, error: falcon.HTTPError) -> None:
    """Write falcon's own errors, also from a script; status and headers are set already."""
    sentence = str(error.description or error.title)
    note_refusal(sentence)
    resp.data = error_body(sentence)
    resp.content_type = falcon.MEDIA_JSON
