"""The reader of plain requests: it reads what gunicorn's parser reads, or leaves it alone."""

import io
import socket
from typing import Any

import pytest
from gunicorn.config import Config
from gunicorn.http import get_parser, wsgi
from gunicorn.http.parser import RequestParser
from hypothesis import given
from hypothesis import strategies as st

from tfs_proxy.worker.gunicorn_workers.plain_http import PlainRequest, plain_environ, plain_request

HEAD = b"POST /invocations HTTP/1.1\r\nHost: x\r\nContent-Type: text/csv\r\nContent-Length: 5\r\n\r\n"


def read(data: bytes, *, later: bytes = b"") -> PlainRequest | None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(later)
        theirs.shutdown(socket.SHUT_WR)
        request = plain_request(data, ours)
        if request is not None:
            request.body = _Read(request)  # type: ignore[assignment]
        return request


class _Read(io.BytesIO):
    """The body, read before its socket closes."""

    def __init__(self, request: PlainRequest) -> None:
        super().__init__(request.body.read())
        self.left = request.body.left


def test_a_body_that_breaks_off_is_short() -> None:
    request = read(HEAD, later=b"1,2")

    assert request is not None
    assert (request.body.read(), request.body.left) == (b"1,2", 2)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        HEAD[:-2],
        HEAD + b"1,2,3,4",
        HEAD.replace(b"HTTP/1.1", b"HTTP/1.0"),
        HEAD.replace(b"/invocations", b"/invocations?a=b"),
        HEAD.replace(b"Host: x", b"Host : x"),
        HEAD.replace(b"Host: x", b"Host: x\r\n folded"),
        HEAD.replace(b"Host: x", b"Host: x\nA: b"),
        HEAD.replace(b"Host: x", b"Content-Length: 4"),
        HEAD.replace(b"Host: x", b"Transfer-Encoding: chunked"),
        HEAD.replace(b"Host: x", b"Expect: 100-continue"),
        HEAD.replace(b"Length: 5", b"Length: +5"),
        HEAD.replace(b"Content-Length: 5\r\n", b""),
    ],
)
def test_what_is_odd_is_left_to_gunicorn(data: bytes) -> None:
    """Nothing is guessed, and nothing refused here."""
    assert read(data) is None


NAMES = st.sampled_from(
    ["Host", "Accept", "X-Amzn-SageMaker-Custom-Attributes", "Connection", "Content-Length", "Te", "A_b", "é"]
)
VALUES = st.one_of(
    st.sampled_from(["x", "3", "keep-alive", "close", "", "tfs-model-name=a"]), st.text(max_size=9)
)
HEADERS = st.lists(st.tuples(NAMES, st.sampled_from([": ", ":", " : ", ":\t"]), VALUES), max_size=5)


@given(
    st.sampled_from(["GET", "POST", "PUT", "get", "P OST"]),
    st.sampled_from(["/invocations", "/", "/a/b-c", "/a?b", "/%41", "//x", "*", "http://x/"]),
    HEADERS,
    st.sampled_from(["\r\n", "\r\n\r\n", "\n\n"]),
    st.binary(max_size=6),
)
def test_it_reads_what_gunicorn_reads(
    method: str, path: str, headers: list[tuple[str, str, str]], end: str, body: bytes
) -> None:
    lines = "".join(f"\r\n{name}{colon}{value}" for name, colon, value in headers)
    data = f"{method} {path} HTTP/1.1{lines}{end}".encode() + body

    request = read(data)

    if request is not None:
        config = Config()
        config.set("forwarded_allow_ips", "")
        theirs = next(get_parser(config, iter([data]), ("127.0.0.1", 1)))
        assert (request.method, request.path, "") == (theirs.method, theirs.path, theirs.query)
        assert list(request.headers.items()) == theirs.headers
        assert request.body.read() == theirs.body.read()
        assert request.should_close() == theirs.should_close()


POST = (
    b"POST /models/a_b/invoke HTTP/1.1\r\nHost: %s\r\nContent-Type: text/csv\r\nContent-Length: 3\r\n"
    b"X-Amzn-SageMaker-Custom-Attributes: tfs-model-name=a\r\nContent-Language: en\r\n\r\n1,2"
)
GET = b"GET /ping HTTP/1.1\r\nAccept: */*\r\n\r\n"
TCP = ("127.0.0.1", 40000), ("10.0.0.1", 8080)
TCP_6 = ("::1", 40000, 0, 0), ("::1", 8080, 0, 0)
UNIX = "", "/run/worker.sock"
OTHERS = ("wsgi.errors", "wsgi.early_hints", "wsgi.input", "wsgi.file_wrapper", "wsgi.multithread")
"""Keys that differ: nobody here sends early hints or files."""


@pytest.mark.parametrize("data", [POST % b"x", POST % b"x:81", POST % b"[::1]:81", GET])
@pytest.mark.parametrize(("client", "server"), [TCP, TCP_6, UNIX])
def test_an_environ_is_gunicorns(data: bytes, client: Any, server: Any) -> None:
    config = Config()
    config.set("workers", 2)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        request = plain_request(data, ours)
        assert request is not None
        parsed = next(RequestParser(config, iter([data]), client))
        _, expected = wsgi.create(parsed, ours, client, server, config)

        environ = plain_environ(request, ours, client, server)

    assert {name: environ[name] for name in environ if name not in OTHERS} == {
        name: value for name, value in expected.items() if name not in OTHERS
    }
