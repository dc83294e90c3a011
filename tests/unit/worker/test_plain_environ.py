"""The environ of a plain request is gunicorn's."""

import socket
from typing import Any

import pytest
from gunicorn.config import Config
from gunicorn.http import wsgi
from gunicorn.http.parser import RequestParser

from tfs_proxy.worker.gunicorn_workers.plain_http import plain_environ, plain_request

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
