"""Reads the requests that nginx and ordinary clients send; gunicorn reads the rest.

This module reads only what is certain: HTTP/1.1, at most one Content-Length, plain ASCII, no header twice.
If it returns None, gunicorn's parser takes the same bytes: it knows the rest and what to refuse, and costs
more than everything else that a small request needs from a server.
"""

import re
import socket
from io import BytesIO
from typing import ClassVar, Protocol

_HEAD = re.compile(
    rb"(GET|POST|PUT|DELETE) (/[A-Za-z0-9/_-]{0,200}+) HTTP/1\.1\r\n"
    rb"((?:[A-Za-z0-9-]{1,64}+: [!-~](?:[ -~]{0,2000}[!-~])?\r\n){1,64}+)\r\n"
)
_LENGTH = re.compile(r"[0-9]{1,12}+")
_LEFT_TO_GUNICORN = frozenset({"TRANSFER-ENCODING", "EXPECT", "UPGRADE", "TE", "TRAILER", "HTTP2-SETTINGS"})


class Source(Protocol):
    """Where the rest of a body is read from: a socket, or what has arrived from one."""

    def recv_into(self, buffer: memoryview, size: int, flags: int, /) -> int:
        """Fill the buffer if ``size`` is 0; how many bytes came, none at the end."""


class PlainBody:
    """The body as WSGI's ``wsgi.input``: as many bytes as the head promised, fewer if the client ends."""

    __slots__ = ("_first", "_source", "left")

    def __init__(self, first: bytes, length: int, source: Source) -> None:
        self._first = first
        self._source = source
        self.left = length

    @property
    def is_here(self) -> bool:
        """Whether nothing needs to be waited for."""
        return self.left == len(self._first)

    def read(self, size: int | None = None) -> bytes:
        """``size`` bytes, or all that are left."""
        wanted = self.left if size is None or size < 0 else min(size, self.left)
        first, self._first = self._first[:wanted], self._first[wanted:]
        body = first if len(first) == wanted else self._received(first, wanted)
        self.left -= len(body)
        return body

    def _received(self, first: bytes, wanted: int) -> bytes:
        """What came first, and what the source has of the rest.

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
    """One request, with the attributes that gunicorn's environ and response need of a request."""

    __slots__ = ("body", "close", "headers", "method", "path")

    version: ClassVar[tuple[int, int]] = (1, 1)
    scheme: ClassVar[str] = "http"
    query: ClassVar[str] = ""
    proxy_protocol_info: ClassVar[None] = None
    _expected_100_continue: ClassVar[bool] = False

    def __init__(self, method: str, path: str, headers: list[tuple[str, str]], body: PlainBody) -> None:
        self.method = method
        self.path = path
        self.headers = headers
        self.body = body
        self.close = False

    @property
    def uri(self) -> str:
        """What the request line asks for."""
        return self.path

    def should_close(self) -> bool:
        """Whether the client asked for the connection's end."""
        return self.close


def plain_request(data: bytes, source: Source) -> PlainRequest | None:
    """The request that ``data``, the first bytes of it, begin; None if it is not plain.

    Nothing more is read from ``source`` until the body is. Bytes after the body, of a client that
    does not wait for the answer, make it not plain.
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
    length = _length(fields, head[1])
    first = data[head.end() :]
    if length is None or len(first) > length:
        return None
    body = PlainBody(first, length, source)
    return PlainRequest(head[1].decode("ascii"), head[2].decode("ascii"), list(fields.items()), body)


def _length(fields: dict[str, str], method: bytes) -> int | None:
    content_length = fields.get("CONTENT-LENGTH")
    if content_length is None:
        return 0 if method == b"GET" else None
    return int(content_length) if _LENGTH.fullmatch(content_length) else None
