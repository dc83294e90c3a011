"""Requests that the server refuses by itself, before anybody is asked to answer them."""

from http import HTTPStatus
from typing import Final

import h11

from tfs_proxy.wire.http_messages import HttpRequest, HttpResponse

UNREAD: Final = HttpRequest("-", "-")
"""A request whose head could not be read."""

_RETRY: Final = {"Retry-After": "1"}
_BODY_LENGTHS: Final = frozenset({b"content-length", b"transfer-encoding"})


def as_it_is(_request: HttpRequest, response: HttpResponse) -> HttpResponse:
    """A server's own answer, if nobody counts those."""
    return response


def request_of(head: h11.Request, body: bytes = b"") -> HttpRequest:
    """The request that a head begins."""
    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in head.headers}
    path, _, query = head.target.decode("ascii", "replace").partition("?")
    return HttpRequest(head.method.decode("ascii"), path, headers, body, query)


def unavailable(text: str) -> HttpResponse:
    """503, and soon again."""
    return HttpResponse.error(HTTPStatus.SERVICE_UNAVAILABLE, text, headers=_RETRY, keeps_connection=False)


def refuse_ambiguous(head: h11.Request, only_once: frozenset[str]) -> None:
    """Raise RemoteProtocolError for two lengths of the body, and for a repeated header of ``only_once``."""
    names = [name for name, _ in head.headers]
    if set(names) >= _BODY_LENGTHS:
        raise h11.RemoteProtocolError("Content-Length and Transfer-Encoding together")
    if any(names.count(name.encode()) > 1 for name in only_once):
        raise h11.RemoteProtocolError("a header that may stand once is repeated")


def refusal(status: int) -> HttpResponse:
    """What h11 refuses, without a word of the client's text."""
    phrase = HTTPStatus(status).phrase.lower()
    return HttpResponse.error(status, f"refused: {phrase}", keeps_connection=False)
