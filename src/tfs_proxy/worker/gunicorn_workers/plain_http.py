"""Fast reader of requests from nginx in place of gunicorn's parser: request, WSGI environ and response.

Only certain cases are read here: HTTP/1.1, at most one Content-Length, plain ASCII, no header twice. All
else is left to gunicorn's parser, which takes the same bytes, and costs more than everything else that a
small request needs from a server.
"""

import re
import socket
import sys
import time
from collections.abc import Callable
from email.utils import formatdate
from functools import lru_cache
from io import BytesIO
from typing import Any, ClassVar, Final

from gunicorn import SERVER_SOFTWARE
from gunicorn.http.wsgi import Response

from tfs_proxy.worker.gunicorn_workers.boundary import SOCKET

HTTP_PORT = "80"
_HEAD = re.compile(
    rb"(GET|POST|PUT|DELETE) (/[A-Za-z0-9/_-]{0,200}+) HTTP/1\.1\r\n"
    rb"((?:[A-Za-z0-9-]{1,64}+: [!-~](?:[ -~]{0,2000}[!-~])?\r\n){1,64}+)\r\n"
)
_LENGTH = re.compile(r"[0-9]{1,12}+")
_LEFT_TO_GUNICORN = frozenset({"TRANSFER-ENCODING", "EXPECT", "UPGRADE", "TE", "TRAILER", "HTTP2-SETTINGS"})
_MOST_NAMES = 512


class PlainBody:
    """Body as WSGI's ``wsgi.input``: as many bytes as the head promised, fewer if the client ends.

    Bytes that have not come yet are read from the socket.
    """

    __slots__ = ("_first", "_source", "left")

    def __init__(self, first: bytes, length: int, source: socket.socket) -> None:
        self._first = first
        self._source = source
        self.left = length

    def read(self, size: int | None = None) -> bytes:
        """Read ``size`` bytes, or all that are left."""
        wanted = self.left if size is None or size < 0 else min(size, self.left)
        first = self._first[:wanted]
        self._first = self._first[wanted:]
        body = first if len(first) == wanted else self._received(first, wanted)
        self.left -= len(body)
        return body

    def _received(self, first: bytes, wanted: int) -> bytes:
        """Read the bytes that came first, and the rest from the socket.

        PERF: into the memory of the bytes that are returned. For pieces that are joined the kernel would
        have to find the pages twice, which takes 2 ms for 3 MB.
        """
        whole = BytesIO()
        whole.seek(wanted - 1)
        whole.write(b"\0")
        have = len(first)
        with whole.getbuffer() as buffer:
            buffer[:have] = first
            while have < wanted:
                count = self._source.recv_into(buffer[have:], 0, socket.MSG_WAITALL)
                if not count:
                    break
                have += count
        whole.truncate(have)
        return whole.getvalue()


class PlainRequest:
    """Request with the attributes that gunicorn's response needs."""

    __slots__ = ("body", "headers", "method", "path")

    version: ClassVar[tuple[int, int]] = (1, 1)

    def __init__(self, method: str, path: str, headers: dict[str, str], body: PlainBody) -> None:
        self.method = method
        self.path = path
        self.headers = headers
        self.body = body

    @property
    def uri(self) -> str:
        return self.path

    def should_close(self) -> bool:
        """Return False: a request to end the connection is not plain."""
        return False


def plain_request(data: bytes, source: socket.socket) -> PlainRequest | None:
    """Read the request that begins with ``data``; None if it is not plain.

    Nothing more is read from ``source`` until the body is.
    """
    head = _HEAD.match(data)
    if head is None:
        return None
    fields: dict[str, str] = {}
    lines = head[3].decode("ascii").split("\r\n")[:-1]
    for line in lines:
        name, _, value = line.partition(": ")
        fields[name.upper()] = value
    if len(fields) < len(lines) or not _LEFT_TO_GUNICORN.isdisjoint(fields):
        return None
    if fields.get("CONNECTION", "keep-alive").lower() != "keep-alive":
        return None
    claimed = fields.get("CONTENT-LENGTH", "0" if head[1] == b"GET" else "")
    first = data[head.end() :]
    length = int(claimed) if _LENGTH.fullmatch(claimed) else -1
    if len(first) > length:  # nginx waits for an answer before it sends another request
        return None
    return PlainRequest(
        head[1].decode("ascii"), head[2].decode("ascii"), fields, PlainBody(first, length, source)
    )


SAME_FOR_ALL: Final = {
    "wsgi.version": (1, 0),
    "wsgi.multithread": True,
    "wsgi.multiprocess": True,
    "wsgi.run_once": False,
    "wsgi.input_terminated": True,
    "wsgi.url_scheme": "http",
    "QUERY_STRING": "",
    "SCRIPT_NAME": "",
    "SERVER_PROTOCOL": "HTTP/1.1",
    "SERVER_SOFTWARE": SERVER_SOFTWARE,
}
"""PERF: row "tiny JSON, classic script": gunicorn makes each environ anew, a sixth of a request's time."""


def plain_environ(
    request: PlainRequest, connection: socket.socket, client: Any, server: Any
) -> dict[str, Any]:
    """Make the WSGI environ; ``client`` and ``server`` are addresses, text for unix sockets."""
    environ: dict[str, Any] = SAME_FOR_ALL.copy()
    for name, value in request.headers.items():
        environ[_key(name)] = value
    environ["wsgi.errors"] = sys.stderr
    environ["wsgi.input"] = request.body
    environ[SOCKET] = connection
    environ["REQUEST_METHOD"] = request.method
    environ["RAW_URI"] = environ["PATH_INFO"] = request.path  # a plain path has nothing to be decoded
    if isinstance(client, str):
        environ["REMOTE_ADDR"] = client
    else:
        environ["REMOTE_ADDR"] = client[0]
        environ["REMOTE_PORT"] = str(client[1])
    environ["SERVER_NAME"], environ["SERVER_PORT"] = _server(server, environ.get("HTTP_HOST"))
    return environ


@lru_cache(_MOST_NAMES)
def _key(name: str) -> str:
    """Key of a header in an environ; a plain one has no underscores, so that no two share a key."""
    key = name.replace("-", "_")
    return key if key in {"CONTENT_TYPE", "CONTENT_LENGTH"} else f"HTTP_{key}"


def _server(address: Any, host: str | None) -> tuple[str, str]:
    """Name and port of the server: those of the Host header if its address is a unix socket."""
    if not isinstance(address, str):
        return address[0], str(address[1])
    if not host:
        return address, ""
    parts = [*host.split(":"), HTTP_PORT]
    return parts[0], parts[1]


class PromptResponse(Response):  # type: ignore[misc]  # gunicorn has no types
    """Response that sends head and body at once, and closes the connection if ``ends`` says so by then.

    The head is binding: a client that was told to keep the connection may have sent on it already.
    """

    headers_sent: bool

    def __init__(
        self, request: PlainRequest, connection: socket.socket, cfg: Any, ends: Callable[[], bool]
    ) -> None:
        super().__init__(request, connection, cfg)
        self._ends = ends
        self._is_last: bool | None = None

    def should_close(self) -> bool:
        """True if this answer is the connection's last."""
        if self._is_last is None or not self.headers_sent:
            self._is_last = self._ends() or bool(super().should_close())
        return self._is_last

    def write(self, arg: bytes) -> None:
        """Send a piece of the body; the head goes with it if the piece is the whole body."""
        if self.headers_sent or self.chunked or self.upgrade or len(arg) != self.response_length:
            super().write(arg)
            return
        connection = "close" if self.should_close() else "keep-alive"
        more = "".join([f"{name}: {value}\r\n" for name, value in self.headers])
        head = (
            f"HTTP/1.1 {self.status}\r\nServer: {self.version}\r\nDate: {_date(int(time.time()))}\r\n"
            f"Connection: {connection}\r\n{more}\r\n"
        )
        self.headers_sent = True
        self.sent = len(arg)
        self.sock.sendall(head.encode("latin-1") + arg)


@lru_cache(maxsize=1)
def _date(second: int) -> str:
    """Format a second as in the Date header; many requests share one."""
    return formatdate(second, usegmt=True)
