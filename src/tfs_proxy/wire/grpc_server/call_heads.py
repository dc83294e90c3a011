"""The headers of a call, read: which method, by when, and how its message is packed."""

from typing import NamedTuple

from tfs_proxy.wire.http2.header_blocks import Headers

_CONTENT_TYPE = "application/grpc"
_MOST_DIGITS = 8
_SECONDS = {"H": 3600.0, "M": 60.0, "S": 1.0, "m": 1e-3, "u": 1e-6, "n": 1e-9}
_FIELD_BYTES = 32
MOST_HEADER_BYTES = 1 << 16
"""The largest header list of a call, as HTTP/2 counts it."""

_CONNECTIONS_OWN = frozenset({"connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade"})


class NotACall(Exception):
    """The request is none of gRPC: ``status`` is HTTP's answer."""

    def __init__(self, status: int) -> None:
        super().__init__(f"HTTP's status {status}")
        self.status = status


class Malformed(Exception):
    """The header list is none of a request (RFC 9113, 8.1.1)."""


class CallHead(NamedTuple):
    """``seconds`` until the deadline is None if there is none."""

    path: str
    seconds: float | None
    encoding: str


def read_call_head(headers: Headers) -> CallHead:
    """The head of a call. Raises Malformed and NotACall."""
    if ":path" not in headers or ":method" not in headers or not _CONNECTIONS_OWN.isdisjoint(headers):
        raise Malformed
    if headers[":method"] != "POST":
        raise NotACall(405)
    if not headers.get("content-type", "").startswith(_CONTENT_TYPE):
        raise NotACall(415)
    timeout = headers.get("grpc-timeout")
    return CallHead(
        headers[":path"],
        None if timeout is None else _seconds(timeout),
        headers.get("grpc-encoding", "identity"),
    )


def list_bytes(headers: Headers) -> int:
    """The size of a header list as HTTP/2 counts it."""
    return sum(len(name) + len(value) + _FIELD_BYTES for name, value in headers.items())


def _seconds(timeout: str) -> float:
    """Raises Malformed."""
    count, unit = timeout[:-1], timeout[-1:]
    if not (count.isascii() and count.isdigit() and len(count) <= _MOST_DIGITS and unit in _SECONDS):
        raise Malformed
    return int(count) * _SECONDS[unit]
