"""The WSGI environ of a plain request: gunicorn's, from what is the same for all of them and what is not."""

import socket
from functools import lru_cache
from typing import Any, Protocol

from gunicorn.http import wsgi

from tfs_proxy.web.workers.plain_request import PlainRequest

HTTP_PORT = "80"
_MOST_NAMES = 512


class Accepted(Protocol):
    """A connection, with the addresses of both ends as `socket` has them: text for unix sockets."""

    sock: socket.socket
    client: Any
    server: Any


class PlainEnvirons:
    """Makes the environs of one worker; to be made once what the worker logs to is known.

    PERF: gunicorn begins each environ anew, which takes a sixth of a small request's time in the worker.
    """

    def __init__(self, cfg: Any) -> None:
        self._same_for_all: dict[str, Any] = {
            **wsgi.base_environ(cfg),
            "wsgi.multithread": True,
            "wsgi.url_scheme": PlainRequest.scheme,
            "QUERY_STRING": PlainRequest.query,
            "SCRIPT_NAME": "",
            "SERVER_PROTOCOL": "HTTP/1.1",
        }

    def of(self, request: PlainRequest, connection: Accepted) -> dict[str, Any]:
        """The environ of a request on a connection."""
        environ = self._same_for_all.copy()
        for name, value in request.headers:
            environ[_key(name)] = value
        environ["wsgi.input"] = request.body
        environ["gunicorn.socket"] = connection.sock
        environ["REQUEST_METHOD"] = request.method
        environ["RAW_URI"] = environ["PATH_INFO"] = request.path  # a plain path has nothing to be decoded
        client = connection.client
        if isinstance(client, str):
            environ["REMOTE_ADDR"] = client
        else:
            environ["REMOTE_ADDR"], environ["REMOTE_PORT"] = client[0], str(client[1])
        environ["SERVER_NAME"], environ["SERVER_PORT"] = _server(connection.server, environ.get("HTTP_HOST"))
        return environ


@lru_cache(_MOST_NAMES)
def _key(name: str) -> str:
    """A header's name in an environ; a plain one has no underscores, so that no two share a key."""
    key = name.replace("-", "_")
    return key if key in {"CONTENT_TYPE", "CONTENT_LENGTH"} else f"HTTP_{key}"


def _server(address: Any, host: str | None) -> tuple[str, str]:
    """The server's name and port: those of the Host header if its address is a unix socket."""
    if not isinstance(address, str):
        return address[0], str(address[1])
    if not host:
        return address, ""
    name, port, *_ = (*host.split(":"), HTTP_PORT)
    return name, port
