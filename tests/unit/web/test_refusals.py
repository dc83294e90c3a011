"""What the workers answer where gunicorn refuses a request by itself."""

import json
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from gunicorn.http import errors

from tfs_proxy.web.workers.base import closing_connections, collect_logs
from tfs_proxy.web.workers.refusals import OUR_FAULT, REFUSALS, refusal


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (errors.InvalidRequestLine("<script>"), 400),
        (errors.InvalidHeader("<script>"), 400),
        (errors.LimitRequestLine(9000, 4094), 414),
        (errors.LimitRequestHeaders("<script>"), 431),
        (errors.UnsupportedTransferCoding("<script>"), 501),
        (errors.InvalidResponseHeader("<script>"), 500),
        (errors.ParseException("<script>"), 400),
        (RuntimeError("<script>"), 500),
    ],
)
def test_refusal(error: Exception, status: int) -> None:
    """A whole HTTP response with a JSON error, without a word of the client's."""
    head, _, body = refusal(error).response().partition(b"\r\n\r\n")

    assert head.startswith(b"HTTP/1.1 %d " % status)
    assert b"Connection: close" in head
    assert b"Content-Length: %d" % len(body) in head
    assert list(json.loads(body)) == ["error"]
    assert b"script" not in body


def test_every_parse_error_is_known() -> None:
    """Each of gunicorn's own parse errors has an answer more exact than an internal error."""
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, Exception)]
    ours = {"InvalidResponseHeader", "InvalidResponseHeaderName", "ConfigurationProblem", "NoMoreData"}

    unknown = [
        kind.__name__ for kind in kinds if not set(REFUSALS) & {base.__name__ for base in kind.__mro__}
    ]

    assert set(unknown) <= ours
    assert refusal(KeyError()) is OUR_FAULT


class Response:
    """Stands in for gunicorn's response."""

    def __init__(self) -> None:
        self.closed = False
        self.started: tuple[Any, ...] = ()

    def force_close(self) -> None:
        self.closed = True

    def start_response(self, *arguments: Any) -> None:
        self.started = arguments


@pytest.mark.parametrize(
    ("headers", "closed"),
    [([("Connection", "close")], True), ([("connection", "close")], True), ([("X", "close")], False)],
)
def test_connection_close(headers: list[tuple[str, str]], closed: bool) -> None:
    """A Connection: close of the app's closes gunicorn's connection."""

    def app(_environ: Any, start_response: Callable[..., Any]) -> Iterator[bytes]:
        start_response("413 Too Large", headers)
        return iter([b"x"])

    response = Response()

    body = list(closing_connections(app)({}, response.start_response))

    assert body == [b"x"]
    assert response.closed is closed
    assert response.started == ("413 Too Large", headers)


def test_logs_are_collected(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything that logs goes where gunicorn's log goes, with its level."""
    root = logging.getLogger("a_root")
    monkeypatch.setattr(logging, "getLogger", lambda *_: root)
    source = root.getChild("gunicorn")
    source.setLevel(logging.WARNING)
    handler = logging.NullHandler()
    source.addHandler(handler)

    collect_logs(source)

    assert root.handlers == [handler]
    assert root.level == logging.WARNING
