"""What gunicorn refuses by itself, over raw sockets: always JSON, never a word of the client's."""

from collections.abc import Iterator

import pytest

from support.gunicorn_workers import LIMIT_BYTES, Workers, error_text, parsed, workers

CHUNKED = b"POST /invocations HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.fixture(scope="module", params=["gthread", "sync", "gevent"])
def running(request: pytest.FixtureRequest) -> Iterator[Workers]:
    """One worker of each class, without a script."""
    with workers(request.param, behind_nginx=False) as started:
        started.wait_for_heartbeats()
        yield started


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"<script>\r\n\r\n", 400),
        (b"GET\r\n\r\n", 400),
        (b"GET / HTTP/9.x\r\n\r\n", 400),
        (b"G<script> / HTTP/1.1\r\n\r\n", 400),
        (b"GET /" + b"a" * 9000 + b" HTTP/1.1\r\n\r\n", 414),
        (b"GET /ping HTTP/1.1\r\nX: " + b"a" * 70_000 + b"\r\n\r\n", 431),
        (b"GET /ping HTTP/1.1\r\n" + b"X: a\r\n" * 300 + b"\r\n", 431),
        (b"GET /ping HTTP/1.1\r\n<script>: 1\r\n\r\n", 400),
        (b"GET /ping HTTP/1.1\r\nX: a\r\n folded\r\n\r\n", 400),
        (b"POST /invocations HTTP/1.1\r\nContent-Length: <script>\r\n\r\n", 400),
        (b"POST /invocations HTTP/1.1\r\nContent-Length: -1\r\n\r\n", 400),
        (b"POST /invocations HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab", 400),
        (b"POST /invocations HTTP/1.1\r\nTransfer-Encoding: <script>\r\n\r\n", 501),
        (b"POST /invocations HTTP/1.1\r\nTransfer-Encoding: gzip\r\n\r\n", 400),
        (b"POST /invocations HTTP/1.1\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 501),
        (b"POST /invocations HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n", 400),
        (b"POST /invocations HTTP/1.1\r\nExpect: <script>\r\nContent-Length: 1\r\n\r\n", 417),
    ],
)
def test_refusals(running: Workers, request_bytes: bytes, status: int) -> None:
    """Requests that never reach the app are refused in JSON, and the connection closes."""
    said = error_text(running.raw(request_bytes), status)

    assert "script" not in said
    assert "/" not in said


@pytest.mark.parametrize(
    "body",
    [
        b"zz\r\nab\r\n0\r\n\r\n",
        b"2\r\nabXX0\r\n\r\n",
        b"2;=<script>\r\nab\r\n0\r\n\r\n",
        b"-1\r\n\r\n",
        b"\r\n",
    ],
)
def test_malformed_chunks(running: Workers, body: bytes) -> None:
    """A body whose chunks are malformed is 400; nothing is computed on it."""
    assert "can't be read" in error_text(running.raw(CHUNKED + body), 400)


def test_chunked_body_over_the_limit(running: Workers) -> None:
    """A chunked body over the limit is 413, and the connection closes."""
    chunk = b"1000\r\n" + b"x" * 0x1000 + b"\r\n"

    raw = running.raw(CHUNKED + chunk * (LIMIT_BYTES // 0x1000 + 5) + b"0\r\n\r\n")

    assert "SAGEMAKER_MAX_PAYLOAD_IN_MB" in error_text(raw, 413)


@pytest.mark.parametrize(
    ("line", "status"),
    [
        (b"GET /%zz HTTP/1.1", 404),
        (b"GET /%00 HTTP/1.1", 404),
        (b"GET /%ff?%ff=%zz HTTP/1.1", 404),
        (b"GET /../../etc/passwd HTTP/1.1", 404),
        (b"GET http://x/nope HTTP/1.1", 404),
        (b"OPTIONS * HTTP/1.1", 404),
        (b"GET /invocations HTTP/1.1", 405),
        (b"BREW /invocations HTTP/1.1", 405),
        (b"GET /ping HTTP/1.1", 503),
    ],
)
def test_odd_requests(running: Workers, line: bytes, status: int) -> None:
    """Odd but readable requests are answered by the app, in the same shape."""
    assert error_text(running.raw(line + b"\r\nHost: x\r\nConnection: close\r\n\r\n"), status)


@pytest.mark.parametrize(
    "header", [b"SCRIPT_NAME: /x", b"PATH_INFO: /ping", b"X-Forwarded-Proto: https\r\nX-Forwarded-SSL: off"]
)
def test_headers_that_a_proxy_might_set(running: Workers, header: bytes) -> None:
    """No client, however near, changes path or scheme by a header."""
    raw = running.raw(b"GET /nope HTTP/1.1\r\nHost: x\r\nConnection: close\r\n" + header + b"\r\n\r\n")

    assert "nothing at this path" in error_text(raw, 404)


def test_a_body_by_chunks(running: Workers) -> None:
    """A well-formed chunked body is read like any other."""
    body = b'{"instances": [1.0]}'
    chunks = b"".join(b"%x\r\n%s\r\n" % (1, body[at : at + 1]) for at in range(len(body))) + b"0\r\n\r\n"

    raw = running.raw(CHUNKED.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n") + chunks)

    assert parsed(raw)[::2] == (200, b'{"predictions": [2.5]}')
