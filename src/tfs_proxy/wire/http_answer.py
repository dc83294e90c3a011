"""Reads one HTTP/1.1 response off a connection, strictly: it does not guess if a length or a line is odd.

RFC 9112 has the format. This is the client's half alone; `http.client` parses the same response with the
email package, which costs more than the model server's whole part of a small request.
"""

import re
from collections.abc import Callable

from tfs_proxy.wire.http_messages import HttpResponse

MOST_HEAD_BYTES = 65_536
_MOST_LINE_BYTES = 4096
_CONTINUE, _SWITCHING, _OK, _NO_CONTENT, _NOT_MODIFIED = 100, 101, 200, 204, 304

_STATUS_LINE = re.compile(rb"HTTP/1\.([01]) ([1-5][0-9]{2})(?: [\t\x20-\x7e\x80-\xff]*)?\Z")
_HEADER_LINE = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([\t\x20-\x7e\x80-\xff]*?)[ \t]*\Z")
_CHUNK_LINE = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;[\t\x20-\x7e\x80-\xff]*)?\Z")
_LENGTH = re.compile(rb"[0-9]{1,15}\Z")

Receive = Callable[[], bytes]
"""Gives the next bytes that have arrived, at least one; none at the end of the connection."""


class NoAnswer(ConnectionError):
    """The connection ended before a byte of an answer."""


class BrokenAnswer(Exception):
    """The answer is not HTTP, or breaks off; the text says where."""


def read_response(receive: Receive) -> HttpResponse:
    """Read the final response to a request other than HEAD; interim ones (100) are skipped.

    Raises NoAnswer, BrokenAnswer, and what ``receive`` raises.
    """
    buffer = receive()
    if not buffer:
        raise NoAnswer("the connection ended without an answer")
    while True:
        head, buffer = _read_head(buffer, receive)
        version, status, headers = _parse_head(head)
        if status == _SWITCHING:
            raise BrokenAnswer("it switches protocols")
        if status >= _OK:
            break
    body, rest, delimited = _read_body(status, headers, buffer, receive)
    # Bytes after the answer belong to no request of ours: taken for the next answer they would be wrong.
    keeps_connection = delimited and not rest and _is_kept(version, headers)
    fields = {name.decode("latin-1"): value.decode("latin-1") for name, value in headers}
    return HttpResponse(status, body, fields, keeps_connection)


Headers = list[tuple[bytes, bytes]]


def _read_head(buffer: bytes, receive: Receive) -> tuple[bytes, bytes]:
    """The head without its last line ends, and what follows."""
    while (end := buffer.find(b"\r\n\r\n")) < 0:
        if len(buffer) > MOST_HEAD_BYTES:
            raise BrokenAnswer("its head does not end")
        buffer += _more(receive)
    if end > MOST_HEAD_BYTES:
        raise BrokenAnswer("its head is too long")
    return buffer[:end], buffer[end + 4 :]


def _parse_head(head: bytes) -> tuple[bytes, int, Headers]:
    lines = head.split(b"\r\n")
    status = _STATUS_LINE.match(lines[0])
    if status is None:
        raise BrokenAnswer("it does not begin with a status")
    headers = []
    for line in lines[1:]:
        header = _HEADER_LINE.match(line)
        if header is None:
            raise BrokenAnswer("a header can't be read")
        headers.append((header[1], header[2]))
    return status[1], int(status[2]), headers


def _values(headers: Headers, name: bytes) -> list[bytes]:
    return [value for known, value in headers if len(known) == len(name) and known.lower() == name]


def _is_kept(version: bytes, headers: Headers) -> bool:
    words = [word.strip().lower() for value in _values(headers, b"connection") for word in value.split(b",")]
    return b"close" not in words and (version == b"1" or b"keep-alive" in words)


def _read_body(status: int, headers: Headers, buffer: bytes, receive: Receive) -> tuple[bytes, bytes, bool]:
    """Body, what follows it, and whether its end is known by anything but the connection's."""
    if status in {_NO_CONTENT, _NOT_MODIFIED}:
        return b"", buffer, True
    codings, lengths = _values(headers, b"transfer-encoding"), set(_values(headers, b"content-length"))
    if codings:
        if lengths or [coding.lower() for coding in codings] != [b"chunked"]:
            raise BrokenAnswer("its length is given in two ways, or in a way that is not known")
        return (*_read_chunks(buffer, receive), True)
    if not lengths:
        return _read_to_end(buffer, receive), b"", False
    length = lengths.pop()
    if lengths or not _LENGTH.match(length):
        raise BrokenAnswer("its length is not a number")
    return (*_read_exactly(int(length), buffer, receive), True)


def _more(receive: Receive) -> bytes:
    part = receive()
    if not part:
        raise BrokenAnswer("it breaks off")
    return part


def _read_to_end(buffer: bytes, receive: Receive) -> bytes:
    parts = [buffer]
    while part := receive():
        parts.append(part)
    return b"".join(parts)


def _read_exactly(length: int, buffer: bytes, receive: Receive) -> tuple[bytes, bytes]:
    if len(buffer) == length:
        return buffer, b""
    parts, have = [buffer], len(buffer)
    while have < length:
        part = _more(receive)
        parts.append(part)
        have += len(part)
    whole = b"".join(parts)
    return (whole, b"") if have == length else (whole[:length], whole[length:])


def _read_chunks(buffer: bytes, receive: Receive) -> tuple[bytes, bytes]:
    parts: list[bytes] = []
    while True:
        line, buffer = _read_line(buffer, receive)
        size = _CHUNK_LINE.match(line)
        if size is None:
            raise BrokenAnswer("a chunk's size is not a number")
        length = int(size[1], 16)
        if not length:
            return b"".join(parts), _read_trailers(buffer, receive)
        part, buffer = _read_exactly(length + 2, buffer, receive)
        if part[-2:] != b"\r\n":
            raise BrokenAnswer("a chunk is longer than it says")
        parts.append(part[:-2])


def _read_trailers(buffer: bytes, receive: Receive) -> bytes:
    read = 0
    while True:
        line, buffer = _read_line(buffer, receive)
        if not line:
            return buffer
        read += len(line)
        if _HEADER_LINE.match(line) is None or read > MOST_HEAD_BYTES:
            raise BrokenAnswer("a trailer can't be read")


def _read_line(buffer: bytes, receive: Receive) -> tuple[bytes, bytes]:
    while (end := buffer.find(b"\r\n")) < 0:
        if len(buffer) > _MOST_LINE_BYTES:
            raise BrokenAnswer("a line does not end")
        buffer += _more(receive)
    return buffer[:end], buffer[end + 2 :]
