"""A request as raw bytes with the answers that are right, and what such bytes are made of."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from attack.fronts import BODY

CUT = 0
"""Closed without an answer."""
GOOD = frozenset({200})
REFUSED = frozenset({400, 408, 411, 413, 414, 417, 431, 494, 501, 505, CUT})
ABSENT = frozenset({400, 404, 405})
MALFORMED = frozenset({400})
ALLOWED = GOOD | REFUSED
"""It may be refused, or taken: what counts is that there is one answer, and the server lives."""
LENIENT = {"embedded": ALLOWED}
"""TensorFlow Serving takes it, and so does the server that stands in for it."""
ATTRIBUTES = "X-Amzn-SageMaker-Custom-Attributes"
SILENT = -1
"""No answer in time, and the connection still open."""


@dataclass(frozen=True, slots=True)
class Case:
    """What is sent, and which statuses are right; ``on`` has those of fronts that differ.

    ``{get}`` and ``{post}`` in it stand for the front's paths. ``ends`` says that the client closes its
    half at the end, ``most`` how many answers may come.
    """

    name: str
    sent: bytes
    right: frozenset[int]
    on: Mapping[str, frozenset[int]] = field(default_factory=dict)
    ends: bool = False
    most: int = 1


def request(line: str, *headers: str, body: bytes = b"", host: bool = True, end: str = "\r\n") -> bytes:
    """A request of a line, headers and a body; it asks the server to close."""
    lines = [line, *(["Host: x"] if host else []), *headers, "Connection: close", "", ""]
    return end.join(lines).encode("latin-1") + body


def get(target: str = "{get}", *headers: str) -> bytes:
    return request(f"GET {target} HTTP/1.1", *headers)


def post(*headers: str, body: bytes = BODY, kind: str = "application/json") -> bytes:
    length = f"Content-Length: {len(body)}"
    return request("POST {post} HTTP/1.1", f"Content-Type: {kind}", length, *headers, body=body)


def framed(*headers: str, body: bytes = BODY, version: str = "1.1") -> bytes:
    """A POST whose framing is in ``headers`` alone."""
    return request(f"POST {{post}} HTTP/{version}", "Content-Type: application/json", *headers, body=body)


def chunked(body: bytes, *headers: str, encoding: str = "chunked") -> bytes:
    return framed(f"Transfer-Encoding: {encoding}", *headers, body=body)


CHUNK = b"%x\r\n%s\r\n" % (len(BODY), BODY)
SMUGGLED = b"GET {get} HTTP/1.1\r\nHost: x\r\n\r\n"
