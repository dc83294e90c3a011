"""The end of an HTTP answer in a stream of bytes, and its status: all that a load generator needs to know.

PERF: whole HTTP parsers cost as much as the rest of a request; this reads the two headers that frame a body.
"""

import re
from dataclasses import dataclass

_END_OF_HEAD = b"\r\n\r\n"
_STATUS = re.compile(rb"HTTP/1\.[01] (\d{3})")
_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*(\d+)[ \t]*\r\n", re.IGNORECASE)
_CHUNKED = re.compile(rb"\r\ntransfer-encoding:[^\r]*chunked[ \t]*\r\n", re.IGNORECASE)
_CLOSE = re.compile(rb"\r\nconnection:[ \t]*close[ \t]*\r\n", re.IGNORECASE)
_INFORMATIONAL = range(100, 200)
_WITHOUT_BODY = (204, 304)


@dataclass(frozen=True, slots=True)
class AnswerEnd:
    """A whole answer: its ``status``, how many bytes it takes, and whether the connection ends with it."""

    status: int
    size: int
    closes: bool


class NotAnAnswer(Exception):
    """The bytes are not an HTTP answer that says where it ends."""


def answer_end(received: bytes | bytearray) -> AnswerEnd | None:
    """The first answer in ``received``, None as long as it is not whole. Raises NotAnAnswer."""
    start = 0
    while True:
        end = received.find(_END_OF_HEAD, start)
        if end < 0:
            return None
        head = bytes(received[start : end + 2])
        match = _STATUS.match(head)
        if match is None:
            raise NotAnAnswer("what came is not HTTP")
        status = int(match[1])
        start = end + len(_END_OF_HEAD)
        if status not in _INFORMATIONAL:
            break
    size = _size(received, start, head, status)
    if size is None or size > len(received):
        return None
    return AnswerEnd(status, size, _CLOSE.search(head) is not None)


def _size(received: bytes | bytearray, body: int, head: bytes, status: int) -> int | None:
    """Where the answer ends, whose body begins at ``body``; None if that is not known yet."""
    if status in _WITHOUT_BODY:
        return body
    length = _LENGTH.search(head)
    if length is not None:
        return body + int(length[1])
    if _CHUNKED.search(head) is None:
        raise NotAnAnswer("the answer does not say where it ends")
    return _end_of_chunks(received, body)


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
