"""Sessions of requests to /invocations: opened, checked and closed before a script or model answers."""

import json
from contextlib import suppress
from datetime import datetime
from http import HTTPStatus
from typing import TYPE_CHECKING, Protocol

import falcon

from tfs_proxy.values.errors import BadInput, RequestError
from tfs_proxy.wire.header_names import CLOSED_SESSION_ID, NEW_SESSION, NEW_SESSION_ID, SESSION_ID
from tfs_proxy.wire.media_types import JSON
from tfs_proxy.worker.body import short_body

if TYPE_CHECKING:
    from tfs_proxy.serving.session_store import OpenSession, SessionStore

CLOSE, NOTHING = "CLOSE", ""
REQUEST_TYPE = "requestType"
LONGEST_ACT_BYTES = 256
"""Longest body that is looked into for an act, which has some 30 bytes."""


class InvocationsResource(Protocol):
    """Resource that answers requests to /invocations."""

    method: str

    def on_post(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Answer a request."""


class SessionInvocations:
    """Resource in front of ``invocations``; requests without a session's header go through it as they are."""

    method = "POST"

    def __init__(self, store: "SessionStore", invocations: InvocationsResource) -> None:
        self._store = store
        self._invocations = invocations

    def on_post(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Answer by the rules of docs/reference/sagemaker.md.

        Raises UnknownSession for an id that is not that of an open session, SessionFailure if the store is
        full, and BadInput for an act that does not fit the header.
        """
        named = req.get_header(SESSION_ID)
        if not named:
            self._invocations.on_post(req, resp)
        elif named == NEW_SESSION:
            self._open(req, resp)
        else:
            self._go_on(req, resp, named)

    def _open(self, req: falcon.Request, resp: falcon.Response) -> None:
        act = _act(req)
        if act == CLOSE:
            raise BadInput(f"{SESSION_ID}: {NEW_SESSION} names no session to close: send the id of one.")
        opened = self._store.open_session()
        if act in {NEW_SESSION, NOTHING}:
            _write(resp, "opened")
            resp.set_header(NEW_SESSION_ID, header_value(opened.id, opened.expires))
            return
        try:
            self._answer(req, resp, opened)
        except BaseException:
            self._drop(opened)
            raise
        if resp.status_code >= HTTPStatus.BAD_REQUEST or resp.get_header(NEW_SESSION_ID) is not None:
            self._drop(opened)  # the client gets no id, or one that the script has chosen
        else:
            resp.set_header(NEW_SESSION_ID, header_value(opened.id, opened.expires))

    def _go_on(self, req: falcon.Request, resp: falcon.Response, session_id: str) -> None:
        opened, act = self._store.find(session_id), _act(req)
        if act == NEW_SESSION:
            raise BadInput(f"{SESSION_ID}: {NEW_SESSION} opens a session, not the id of another one.")
        if act != CLOSE:
            self._answer(req, resp, opened)
            return
        self._store.close_session(session_id)
        _write(resp, "closed")
        resp.set_header(CLOSED_SESSION_ID, session_id)

    def _answer(self, req: falcon.Request, resp: falcon.Response, opened: "OpenSession") -> None:
        from tfs_proxy.serving.script.session import Session

        req.context.session = Session(self._store, opened)
        self._invocations.on_post(req, resp)

    def _drop(self, opened: "OpenSession") -> None:
        with suppress(RequestError):
            self._store.close_session(opened.id)


def header_value(session_id: str, expires: datetime) -> str:
    """Value of the header that tells a client its session (docs/reference/sagemaker.md)."""
    return f"{session_id}; Expires={expires:%Y-%m-%dT%H:%M:%SZ}"


def _act(req: falcon.Request) -> str | None:
    """Act that the whole body asks for, `NEW_SESSION` or `CLOSE`; None if it is for the script or model.

    An empty body is `NOTHING`.
    """
    body = short_body(req, LONGEST_ACT_BYTES)
    if body is None or REQUEST_TYPE.encode() not in body:
        return NOTHING if body == b"" else None
    try:
        asked = json.loads(body)
    except ValueError:
        return None
    acts = [{REQUEST_TYPE: act} for act in (NEW_SESSION, CLOSE)]
    return str(asked[REQUEST_TYPE]) if asked in acts else None


def _write(resp: falcon.Response, state: str) -> None:
    resp.data = json.dumps({"session": state}).encode()
    resp.content_type = JSON
