"""Reads one HTTP/1.1 response from a connection, strictly: it does not guess if a length or a line is odd.

RFC 9112 has the format. This is only the client's half; `http.client` parses the same response with the
email package, which costs more than the model server's whole part of a small request.
"""

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from http import HTTPStatus
from typing import TypeVar

from msgspec import Struct

from tfs_proxy.wire.http_messages import HttpResponse

MOST_HEAD_BYTES = 65_536
_MOST_LINE_BYTES = 4096

_STATUS_LINE = re.compile(rb"HTTP/1\.([01]) ([1-5][0-9]{2})(?: [\t\x20-\x7e\x80-\xff]*)?\Z")
_HEADER_LINE = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([\t\x20-\x7e\x80-\xff]*?)[ \t]*\Z")
_CHUNK_LINE = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;[\t\x20-\x7e\x80-\xff]*)?\Z")
_LENGTH = re.compile(r"[0-9]{1,15}\Z")

_KNOWN_LINES = 256
_KNOWN_LINE_BYTES = 128
Read = TypeVar("Read")

Receive = Callable[[], bytes]
"""Function that returns the next bytes that have arrived, at least one; b"" at the end of the connection."""


class NoAnswer(ConnectionError):
    """The connection ended before the first byte of an answer."""


class BrokenAnswer(Exception):
    """The answer is not HTTP, or is cut off; the text says where."""


def read_response(receive: Receive) -> HttpResponse:
    """Reads the final response to a request other than HEAD; skips interim ones (100).

    Raises NoAnswer, BrokenAnswer, and what ``receive`` raises.
    """
    version, status, headers, buffer = _final_head(receive)
    body, rest, delimited = _read_body(status, headers, buffer, receive)
    # Bytes after the answer belong to no request of ours, and must not be taken for the next answer.
    words = [word.strip().lower() for value in _values(headers, "connection") for word in value.split(",")]
    is_kept = "close" not in words and (version == b"1" or "keep-alive" in words)
    keeps_connection = delimited and not rest and is_kept
    fields = {header.name: header.value for header in headers}
    return HttpResponse(status, body, fields, keeps_connection)


def _final_head(receive: Receive) -> "tuple[bytes, int, _Headers, bytes]":
    """Version, status and headers of the first answer that is not interim, and the bytes after it."""
    buffer = receive()
    if not buffer:
        raise NoAnswer("the connection ended without an answer")
    while True:
        while (end := buffer.find(b"\r\n\r\n")) < 0:
            if len(buffer) > MOST_HEAD_BYTES:
                raise BrokenAnswer("its head does not end")
            buffer += _more(receive)
        if end > MOST_HEAD_BYTES:
            raise BrokenAnswer("its head is too long")
        first, *lines = buffer[:end].split(b"\r\n")
        version, status = _read_status(first)
        headers = [_read_header(line) for line in lines]
        buffer = buffer[end + 4 :]
        if status == HTTPStatus.SWITCHING_PROTOCOLS:
            raise BrokenAnswer("it switches protocols")
        if status >= HTTPStatus.OK:
            return version, status, headers, buffer


class _Header(Struct, frozen=True):
    """Line of the head; ``key`` is the name in lower case."""

    key: str
    name: str
    value: str


_Headers = Sequence[_Header]


def _remembered(read: Callable[[bytes], Read]) -> Callable[[bytes], Read]:
    """Cache the results of ``read``.

    PERF: a server repeats its lines, and a look-up takes a tenth of the time of reading one.
    """
    known = lru_cache(_KNOWN_LINES)(read)
    return lambda line: known(line) if len(line) <= _KNOWN_LINE_BYTES else read(line)


@_remembered
def _read_status(line: bytes) -> tuple[bytes, int]:
    status = _STATUS_LINE.match(line)
    if status is None:
        raise BrokenAnswer("it does not begin with a status")
    return status[1], int(status[2])


@_remembered
def _read_header(line: bytes) -> _Header:
    header = _HEADER_LINE.match(line)
    if header is None:
        raise BrokenAnswer("a header can't be read")
    name = header[1].decode("latin-1")
    value = header[2].decode("latin-1")
    return _Header(name.lower(), name, value)


def _values(headers: _Headers, key: str) -> list[str]:
    return [header.value for header in headers if header.key == key]


def _read_body(status: int, headers: _Headers, buffer: bytes, receive: Receive) -> tuple[bytes, bytes, bool]:
    """Body, the bytes after it, and True if its end is known without the connection's."""
    if status in {HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED}:
        return b"", buffer, True
    codings = _values(headers, "transfer-encoding")
    lengths = set(_values(headers, "content-length"))
    if codings:
        if lengths or [coding.lower() for coding in codings] != ["chunked"]:
            raise BrokenAnswer("its length is given in two ways, or in a way that is not known")
        return (*_read_chunks(buffer, receive), True)
    if not lengths:
        return b"".join((buffer, *iter(receive, b""))), b"", False
    length = lengths.pop()
    if lengths or not _LENGTH.match(length):
        raise BrokenAnswer("its length is not a number")
    return (*_read_exactly(int(length), buffer, receive), True)


def _more(receive: Receive) -> bytes:
    part = receive()
    if not part:
        raise BrokenAnswer("it breaks off")
    return part


def _read_exactly(length: int, buffer: bytes, receive: Receive) -> tuple[bytes, bytes]:
    if len(buffer) == length:
        return buffer, b""
    parts = [buffer]
    have = len(buffer)
    while have < length:
        part = _more(receive)
        parts.append(part)
        have += len(part)
    whole = b"".join(parts)
    return (whole, b"") if have == length else (whole[:length], whole[length:])


def _read_chunks(buffer: bytes, receive: Receive) -> tuple[bytes, bytes]:
    """Reads a body in chunks; returns the bytes after it, too."""
    body = bytearray()  # one buffer: each chunk may be a byte, whose object takes thirty
    while True:
        line, buffer = _read_line(buffer, receive)
        size = _CHUNK_LINE.match(line)
        if size is None:
            raise BrokenAnswer("a chunk's size is not a number")
        length = int(size[1], 16)
        if not length:
            break
        part, buffer = _read_exactly(length + 2, buffer, receive)
        if part[-2:] != b"\r\n":
            raise BrokenAnswer("a chunk is longer than it says")
        body += part[:-2]
    read = 0
    while True:
        line, buffer = _read_line(buffer, receive)
        if not line:
            return bytes(body), buffer
        read += len(line)
        if _HEADER_LINE.match(line) is None or read > MOST_HEAD_BYTES:
            raise BrokenAnswer("a trailer can't be read")


def _read_line(buffer: bytes, receive: Receive) -> tuple[bytes, bytes]:
    while (end := buffer.find(b"\r\n")) < 0:
        if len(buffer) > _MOST_LINE_BYTES:
            raise BrokenAnswer("a line does not end")
        buffer += _more(receive)
    return buffer[:end], buffer[end + 2 :]
