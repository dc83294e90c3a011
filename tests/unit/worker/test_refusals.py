"""Answers of workers to requests that gunicorn refuses by itself."""

import json
import re

import pytest
from gunicorn.http import errors

from tfs_proxy.worker.gunicorn_workers.refusals import OUR_FAULT, REFUSALS, refusal


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


def test_a_refusal_has_the_id_of_its_request() -> None:
    """A new one if the request could not be read so far."""
    known, unknown = (refusal(RuntimeError()).response(request_id) for request_id in ("an-id", None))

    assert b"\r\nX-Request-Id: an-id\r\n" in known
    assert re.search(rb"\r\nX-Request-Id: [0-9a-f]{32}\r\n", unknown)
