"""The environs of plain requests: what gunicorn makes of the same requests on the same connections."""

import socket
from types import SimpleNamespace
from typing import Any

import pytest
from gunicorn.config import Config
from gunicorn.http import wsgi

from tfs_proxy.web.workers.plain_request import plain_request
from tfs_proxy.web.workers.threads.plain_environ import PlainEnvirons

POST = (
    b"POST /models/a_b/invoke HTTP/1.1\r\nHost: %s\r\nContent-Type: text/csv\r\nContent-Length: 3\r\n"
    b"X-Amzn-SageMaker-Custom-Attributes: tfs-model-name=a\r\nContent-Language: en\r\n\r\n1,2"
)
GET = b"GET /ping HTTP/1.1\r\nAccept: */*\r\n\r\n"
TCP = ("127.0.0.1", 40000), ("10.0.0.1", 8080)
TCP_6 = ("::1", 40000, 0, 0), ("::1", 8080, 0, 0)
UNIX = "", "/run/worker.sock"
OBJECTS = ("wsgi.errors", "wsgi.early_hints")
"""What has no equals; nobody here sends early hints."""


@pytest.mark.parametrize("data", [POST % b"x", POST % b"x:81", POST % b"[::1]:81", GET])
@pytest.mark.parametrize(("client", "server"), [TCP, TCP_6, UNIX])
def test_an_environ_is_gunicorns(data: bytes, client: Any, server: Any) -> None:
    """Over TCP and over a unix socket, with a Host and without one."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        request = plain_request(data, ours)
        assert request is not None
        _, expected = wsgi.create(request, ours, client, server, Config())

        environ = PlainEnvirons(Config()).of(
            request, SimpleNamespace(sock=ours, client=client, server=server)
        )

    assert {name: environ.get(name) for name in expected if name not in OBJECTS} == {
        **{name: value for name, value in expected.items() if name not in OBJECTS},
        "wsgi.multithread": True,
    }
    assert set(environ) <= set(expected)
    assert environ["wsgi.errors"].streams == expected["wsgi.errors"].streams


def test_an_environ_leaves_the_next_one_alone() -> None:
    """What the application, or a header, puts into one is in no other."""
    environs = PlainEnvirons(Config())
    ours, theirs = socket.socketpair()
    with ours, theirs:
        connection = SimpleNamespace(sock=ours, client=TCP[0], server=TCP[1])
        posted, asked = (plain_request(data, ours) for data in (POST % b"x", GET))
        assert posted is not None
        assert asked is not None
        environs.of(posted, connection)["falcon.key"] = 1

        assert not {"falcon.key", "CONTENT_LENGTH", "HTTP_HOST"} & set(environs.of(asked, connection))
