"""The request's body, whole and within the limit: between gunicorn's stream and `web.invocations`."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import falcon

from tfs_proxy.errors import BadInput, PayloadTooLarge
from tfs_proxy.wire.error_body import body_too_large
from tfs_proxy.wire.gzip_body import decoded_body

_MEGABYTE = 1024 * 1024
_PIECE_BYTES = 64 * 1024
DISCARD_SECONDS = 2.0


class BrokenBody(BadInput):
    """The body ended early or its framing is wrong: where a next request would begin is unknown."""


def read_body(req: falcon.Request, limit_bytes: int) -> bytes:
    """All of the body, whether Content-Length or chunks frame it, without its Content-Encoding.

    Raises PayloadTooLarge beyond ``limit_bytes``, packed or unpacked, BrokenBody if it can't be read
    to its end, and what `decoded_body` raises.
    """
    return decoded_body(_whole(req, limit_bytes), req.get_header("Content-Encoding"), limit_bytes)


def _whole(req: falcon.Request, limit_bytes: int) -> bytes:
    length = req.content_length
    if length is not None and length > limit_bytes:
        raise _too_large(limit_bytes)
    body = _read(req.stream, limit_bytes + 1 if length is None else length)
    if length is not None and len(body) < length:
        raise BrokenBody(f"the body ended after {len(body)} of {length} bytes")
    if len(body) > limit_bytes:
        raise _too_large(limit_bytes)
    return body


def _read(stream: Any, count: int) -> bytes:
    """``count`` bytes, fewer at the end. What a server raises here is about the client's bytes."""
    try:
        body: bytes = stream.read(count)
    except Exception as error:
        raise BrokenBody("the body can't be read: it ended early, or its chunks are malformed") from error
    return body


class AnswerBeforeTheEnd:
    """The body of an answer to a request that was not read to its end.

    A client that still writes when its connection is closed never sees the answer. So the rest is read
    away after it was sent, until the client stops, or for ``DISCARD_SECONDS``.
    """

    def __init__(self, body: bytes, req: falcon.Request, clock: Callable[[], float] = time.monotonic) -> None:
        self._body = body
        self._stream = req.stream
        self._socket = req.env.get("gunicorn.socket")
        self._clock = clock

    def __iter__(self) -> Iterator[bytes]:
        yield self._body

    def close(self) -> None:
        """Read the rest of the request; called by the server once the answer is out."""
        if self._socket is not None:
            self._socket.settimeout(DISCARD_SECONDS)
        deadline = self._clock() + DISCARD_SECONDS
        try:
            while self._clock() < deadline and _read(self._stream, _PIECE_BYTES):
                pass
        except BrokenBody:
            return


def _too_large(limit_bytes: int) -> PayloadTooLarge:
    limit = f"{limit_bytes // _MEGABYTE} MB" if limit_bytes >= _MEGABYTE else f"{limit_bytes} bytes"
    return PayloadTooLarge(body_too_large(limit))
