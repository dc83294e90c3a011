"""Reading of a request's body, whole and within the limit."""

import time
from collections.abc import Iterable, Iterator
from typing import Any

import falcon

from tfs_proxy.observe.request_record import READ, note_size, stage
from tfs_proxy.values.deployment import Deployment
from tfs_proxy.values.errors import BadInput, PayloadTooLarge
from tfs_proxy.values.memory import MEGABYTE, Ledger, MemoryBudget
from tfs_proxy.wire.error_body import body_too_large
from tfs_proxy.wire.packed_body import decoded_body
from tfs_proxy.worker.gunicorn_workers.boundary import SOCKET

BODY = "tfs_proxy.body"
"""Key in a WSGI environ, if it is there, for the body that has been read."""

PIECE_BYTES = 64 * 1024
DISCARD_SECONDS = 2.0


class BrokenBody(BadInput):
    """The body ended early or its framing is wrong, so that the beginning of a next request is unknown."""


class BodyReader:
    """Reader of the bodies of one worker's requests, each with the memory that it may take.

    ``ledger`` bounds the memory of large requests in all workers together.
    """

    def __init__(self, deployment: Deployment, ledger: Ledger | None = None) -> None:
        self._limit_bytes = deployment.bodies.payload_bytes
        self._decoded_bytes = deployment.bodies.decoded_bytes
        self._ledger = ledger

    def budget(self) -> MemoryBudget:
        """Memory limit of a request; a context, at whose end all of it is released."""
        return MemoryBudget(self._decoded_bytes, self._ledger)

    def read(self, req: falcon.Request, budget: MemoryBudget) -> bytes:
        """Read the whole body, framed by Content-Length or chunks, without its Content-Encoding.

        Raises PayloadTooLarge for a body over the limit, packed or unpacked, Overloaded if other requests
        have the memory, BrokenBody if it can't be read to its end, and the errors of `decoded_body`.
        """
        length = req.content_length
        with stage(READ):
            expected = length or 0
            if expected > self._limit_bytes:
                raise too_large(self._limit_bytes)
            # The decoded body is reserved, too, so that requests do not wait for each other's.
            budget.take(expected, ahead_bytes=expected)
            body = read_piece(req.stream, self._limit_bytes + 1 if length is None else length)
            if length is not None and len(body) < length:
                raise BrokenBody(f"the body ended after {len(body)} of {length} bytes")
            if len(body) > self._limit_bytes:
                raise too_large(self._limit_bytes)
            note_size(len(body))
            encoding = req.get_header("Content-Encoding")
            if encoding:
                body = decoded_body(body, encoding, self._limit_bytes, budget.take)
        if BODY in req.env:
            req.env[BODY] = body
        return body


def read_piece(stream: Any, count: int) -> bytes:
    """Read ``count`` bytes, fewer at the end. Exceptions of the server here are about the client's bytes."""
    try:
        body: bytes = stream.read(count)
    except Exception as error:
        raise BrokenBody("the body can't be read: it ended early, or its chunks are malformed") from error
    return body


class AnswerBeforeTheEnd:
    """Pieces of the answer to a request that was not read to its end.

    A client that still writes when its connection is closed never sees the answer. So the rest is read and
    dropped after it was sent, until the client stops, or for ``DISCARD_SECONDS``.
    """

    def __init__(self, pieces: Iterable[bytes], req: falcon.Request) -> None:
        self._pieces = pieces
        self._stream = req.stream
        self._socket = req.env.get(SOCKET)

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._pieces)

    def close(self) -> None:
        """Read the rest of the request; the server calls it once the answer is sent."""
        if hasattr(self._pieces, "close"):
            self._pieces.close()
        if self._socket is not None:
            self._socket.settimeout(DISCARD_SECONDS)
        deadline = time.monotonic() + DISCARD_SECONDS
        try:
            while time.monotonic() < deadline and read_piece(self._stream, PIECE_BYTES):
                pass
        except BrokenBody:
            return


def too_large(limit_bytes: int) -> PayloadTooLarge:
    limit = f"{limit_bytes // MEGABYTE} MB" if limit_bytes >= MEGABYTE else f"{limit_bytes} bytes"
    return PayloadTooLarge(body_too_large(limit))
