"""The end of an HTTP answer in a stream of bytes, and its status: all that a load generator needs to know.

PERF: whole HTTP parsers cost as much as the rest of a request; this reads the two headers that frame a body.
"""

import re
from functools import lru_cache

from msgspec import Struct

_END_OF_HEAD = b"\r\n\r\n"
_STATUS = re.compile(rb"HTTP/1\.[01] (\d{3})")
_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*(\d+)[ \t]*\r\n", re.IGNORECASE)
_CHUNKED = re.compile(rb"\r\ntransfer-encoding:[^\r]*chunked[ \t]*\r\n", re.IGNORECASE)
_CLOSE = re.compile(rb"\r\nconnection:[ \t]*close[ \t]*\r\n", re.IGNORECASE)
_INFORMATIONAL = range(100, 200)
_WITHOUT_BODY = (204, 304)


class AnswerEnd(Struct, frozen=True):
    """A whole answer: its ``status``, how many bytes it takes, and whether the connection ends with it."""

    status: int
    size: int
    closes: bool


class NotAnAnswer(Exception):
    """The bytes are not an HTTP answer that says where it ends."""


class _Head(Struct, frozen=True):
    """What the head of an answer says; ``length`` is None if the body comes in chunks."""

    status: int
    length: int | None
    closes: bool


def answer_end(received: bytes | bytearray) -> AnswerEnd | None:
    """The first answer in ``received``, None as long as it is not whole. Raises NotAnAnswer."""
    start = 0
    while True:
        end = received.find(_END_OF_HEAD, start)
        if end < 0:
            return None
        head = _read_head(bytes(received[start : end + 2]))
        start = end + len(_END_OF_HEAD)
        if head.status not in _INFORMATIONAL:
            break
    size = _end_of_chunks(received, start) if head.length is None else start + head.length
    if size is None or size > len(received):
        return None
    return AnswerEnd(head.status, size, head.closes)


@lru_cache(maxsize=64)
def _read_head(head: bytes) -> _Head:
    """Read a head, which ends with a line end; raises NotAnAnswer.

    PERF: but for the seconds of its date, a server sends the same one again and again.
    """
    match = _STATUS.match(head)
    if match is None:
        raise NotAnAnswer("what came is not HTTP")
    status, length = int(match[1]), _LENGTH.search(head)
    closes = _CLOSE.search(head) is not None
    if status in _INFORMATIONAL or status in _WITHOUT_BODY:
        return _Head(status, 0, closes)
    if length is None and _CHUNKED.search(head) is None:
        raise NotAnAnswer("the answer does not say where it ends")
    return _Head(status, int(length[1]) if length else None, closes)


def _end_of_chunks(received: bytes | bytearray, position: int) -> int | None:
    while True:
        line_end = received.find(b"\r\n", position)
        if line_end < 0:
            return None
        try:
            size = int(bytes(received[position:line_end]).partition(b";")[0], 16)
        except ValueError:
            raise NotAnAnswer("a chunk has no size") from None
        position = line_end + 2 + size + 2
        if size == 0:
            return position if position <= len(received) else None
