"""Heads of requests that the HTTP parser has read before: `quick_connection` knows them by their bytes.

Clients send the same head again and again, but for the length of the body. A head is kept only once the
parser has read it, so that nothing here reads HTTP by itself.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

_END = b"\r\n\r\n"
_LENGTH = re.compile(rb"\r\n[Cc]ontent-[Ll]ength: ([0-9]{1,9})\r\n")
_CONTENT_LENGTH = b"content-length"
_MOST_HEADS = 256
_LONGEST_BYTES = 4096
_CHANGE_MEANING = frozenset(
    {b"connection", b"content-encoding", b"expect", b"transfer-encoding", b"trailer", b"upgrade"}
)
"""Headers of requests that are more than a head and as many bytes as it says."""


class KnownPost(NamedTuple):
    """What the head in front of some bytes asks for: its target, and where the body begins and ends."""

    target: bytes
    body_start: int
    body_end: int


class KnownHeads:
    """Heads of plain POSTs on connections that stay open, by their bytes without the body's length."""

    def __init__(self) -> None:
        self._targets: dict[tuple[bytes, bytes], bytes] = {}

    def find(self, data: bytes) -> KnownPost | None:
        """The request that begins with these bytes, if its head is a known one."""
        end = data.find(_END, 0, _LONGEST_BYTES)
        length = _LENGTH.search(data, 0, end + 2) if end > 0 else None
        if length is None:
            return None
        start, stop = length.span(1)
        target = self._targets.get((data[:start], data[stop:end]))
        if target is None:
            return None
        body_start = end + len(_END)
        return KnownPost(target, body_start, body_start + int(length[1]))

    def learn(self, data: bytes, target: bytes, headers: Sequence[tuple[bytes, bytes]]) -> None:
        """Keep the head of a POST that these bytes begin with, as the parser has read it."""
        names = [name for name, _ in headers]
        if names.count(_CONTENT_LENGTH) != 1 or _CHANGE_MEANING.intersection(names):
            return
        end = data.find(_END, 0, _LONGEST_BYTES)
        length = _LENGTH.search(data, 0, end + 2) if end > 0 else None
        if length is None:
            return
        if len(self._targets) >= _MOST_HEADS:
            self._targets.clear()
        start, stop = length.span(1)
        self._targets[data[:start], data[stop:end]] = target
