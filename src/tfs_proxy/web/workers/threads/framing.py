"""Where a request on the wire ends: what its head says of the body, and chunks followed piece by piece.

Nothing is refused here. What is malformed counts as ended, so that gunicorn's parser sees and refuses it.
"""

import re

from msgspec import Struct

from tfs_proxy.observe.request_record import chosen_id
from tfs_proxy.wire.header_names import INFERENCE_ID, REQUEST_ID

HEAD_END = b"\r\n\r\n"
LINE_BYTES = 8 * 1024
"""A chunk's size with its extensions, as gunicorn limits it."""

TRAILER_BYTES = 64 * 1024

_FIELD = re.compile(rb"\r\n(content-length|transfer-encoding|expect)[ \t]*:[ \t]*([^\r\n]*)", re.IGNORECASE)
_EXPECT = re.compile(rb"\r\nexpect[ \t]*:[^\r\n]*", re.IGNORECASE)
_INFERENCE_ID, _REQUEST_ID = INFERENCE_ID.lower().encode(), REQUEST_ID.lower().encode()
_IDS = re.compile(rb"\r\n(%s|%s):[ \t]*([!-~]*)[ \t]*(?=\r\n)" % (_INFERENCE_ID, _REQUEST_ID), re.IGNORECASE)
_LENGTH = re.compile(rb"[0-9]{1,18}[ \t]*")
_CHUNK = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;[^\r\n]*)?\r\n")


def id_of(head: bytes) -> str:
    """The id of a request that is not read by gunicorn, of as much of its head as there is."""
    ids = {name.lower(): value.decode("ascii") for name, value in _IDS.findall(head)}
    return chosen_id(ids.get(_INFERENCE_ID), ids.get(_REQUEST_ID))


class Framing(Struct, frozen=True):
    """How many bytes of body follow a head, or that chunks do; whether the client ``waits`` to be asked."""

    length: int = 0
    chunked: bool = False
    waits: bool = False


def framing(head: bytes) -> Framing:
    """What ``head`` says; no body if it contradicts itself or expects what nobody can meet."""
    fields: dict[bytes, list[bytes]] = {}
    for name, value in _FIELD.findall(head):
        fields.setdefault(name.lower(), []).append(value.strip())
    lengths, codings = fields.get(b"content-length", []), fields.get(b"transfer-encoding", [])
    waits = b"expect" in fields
    if any(value.lower() != b"100-continue" for value in fields.get(b"expect", [])):
        return Framing()
    if codings and not lengths:
        return Framing(0, codings[-1].rpartition(b",")[2].strip().lower() == b"chunked", waits)
    if len(lengths) == 1 and not codings and _LENGTH.fullmatch(lengths[0]):
        return Framing(int(lengths[0]), chunked=False, waits=waits)
    return Framing()


def without_expectation(head: bytes) -> bytes:
    """``head`` once its expectation has been met, as nginx passes it on."""
    return _EXPECT.sub(b"", head)


def has_bare_line_feed(head: bytes) -> bool:
    """Whether a line ends with LF alone: such a head may never end."""
    return head.count(b"\n") != head.count(b"\r\n")


class Chunks:
    """Follows a chunked body; ``body_bytes`` is what its chunks have carried so far."""

    def __init__(self) -> None:
        self._line = b""
        self._chunk_left = 0  # with the line end behind the chunk
        self._trailer_bytes: int | None = None
        self.body_bytes = 0
        self.ended = False

    def follow(self, data: bytes) -> int:
        """How many bytes of ``data`` belong to this body: fewer than all at its end."""
        position = 0
        while position < len(data) and not self.ended:
            if self._chunk_left:
                position += self._pass_chunk(len(data) - position)
            else:
                position = self._pass_line(data, position)
        return position

    def _pass_chunk(self, available: int) -> int:
        step = min(self._chunk_left, available)
        self.body_bytes += max(0, min(step, self._chunk_left - 2))
        self._chunk_left -= step
        return step

    def _pass_line(self, data: bytes, position: int) -> int:
        stop = data.find(b"\n", position) + 1
        self._line += data[position : stop or len(data)]
        if len(self._line) > LINE_BYTES:
            self.ended = True
        elif stop:
            line, self._line = self._line, b""
            self._end_line(line)
        return stop or len(data)

    def _end_line(self, line: bytes) -> None:
        if self._trailer_bytes is not None:
            self._trailer_bytes += len(line)
            self.ended = line == b"\r\n" or self._trailer_bytes > TRAILER_BYTES
            return
        chunk = _CHUNK.fullmatch(line)
        if chunk is None:
            self.ended = True
        elif int(chunk[1], 16):
            self._chunk_left = int(chunk[1], 16) + 2
        else:
            self._trailer_bytes = 0
