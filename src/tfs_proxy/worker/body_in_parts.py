"""Bodies that a script reads in parts, however large they are."""

import io
import logging
from collections.abc import Iterable, Iterator
from tempfile import SpooledTemporaryFile
from typing import Any

import falcon

from tfs_proxy.observe.request_record import READ, note_size, stage
from tfs_proxy.serving.script.caller import ScriptCaller
from tfs_proxy.serving.script.deadline import DeadlineWatch
from tfs_proxy.serving.script.runner import ScriptReply
from tfs_proxy.settings.rows import STALLED_SECONDS
from tfs_proxy.settings.worker_environment import folder_for_files
from tfs_proxy.values.deployment import Deployment
from tfs_proxy.values.errors import ClientStalled, RequestError
from tfs_proxy.values.memory import MEGABYTE
from tfs_proxy.wire.packed_body import read_encoding, unpacked_pieces, unpacks_to_more
from tfs_proxy.worker.body import (
    PIECE_BYTES,
    AnswerBeforeTheEnd,
    BodyReader,
    BrokenBody,
    read_piece,
    too_large,
)
from tfs_proxy.worker.gunicorn_workers.boundary import SOCKET
from tfs_proxy.worker.inference_resources import is_triton_type
from tfs_proxy.worker.invocations import ScriptInvocations, write_reply

log = logging.getLogger(__name__)


class BodyInParts(io.RawIOBase):
    """Body of ``req`` as a raw file.

    Its reads raise PayloadTooLarge beyond the limit, BrokenBody if the body ends early, ClientStalled if
    nothing comes for too long, and the errors of `unpacked_pieces`; after one, all of them do, and it is
    ``error``. The time in which a read waits is not the script's. Raises PayloadTooLarge and
    UnsupportedMediaType.
    """

    def __init__(self, req: falcon.Request, deployment: Deployment, watch: DeadlineWatch) -> None:
        self._length = req.content_length
        self._limit_bytes = None if deployment.bodies.takes_any_size else deployment.bodies.payload_bytes
        if self._limit_bytes is not None and (self._length or 0) > self._limit_bytes:
            raise too_large(self._limit_bytes)
        encoding = read_encoding(req.get_header("Content-Encoding"))
        self._stream = req.stream
        self._socket = req.env.get(SOCKET)
        self._watch = watch
        self._received_bytes = 0
        pieces = iter(lambda: self._receive(PIECE_BYTES), b"")
        self._pieces = pieces if encoding is None else self._unpacked(encoding)
        self._left = memoryview(b"")
        self._kept: SpooledTemporaryFile[bytes] | None = None
        self.error: RequestError | None = None

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        """Read what has come, or wait for it; 0 at the end."""
        if self.error is not None:
            raise self.error
        try:
            while not self._left:
                piece = next(self._pieces, None)
                if piece is None:
                    return 0
                self._left = memoryview(piece)
        except RequestError as error:
            log.warning("a body that was read in parts: %s, after %d bytes", error, self._received_bytes)
            self.error = error
            raise
        count = min(len(buffer), len(self._left))
        buffer[:count] = self._left[:count]
        self._left = self._left[count:]
        return count

    def keep(self) -> None:
        """Move what has not been read to a file: nginx sends no more once it gets an answer.

        Raises what reads do.
        """
        if self.closed:
            return
        kept = self._kept = SpooledTemporaryFile(MEGABYTE, dir=folder_for_files())  # noqa: SIM115 - closed below
        while piece := self.read(PIECE_BYTES):
            kept.write(piece)
        kept.seek(0)
        self._pieces = iter(lambda: kept.read(PIECE_BYTES), b"")

    def close(self) -> None:
        """Close the file; the script's, which reads this one, does so when it is closed or forgotten."""
        super().close()
        if self._kept is not None:
            self._kept.close()

    def _receive(self, most_bytes: int) -> bytes:
        if self._received_bytes == self._length:
            return b""
        with stage(READ), self._watch.waiting_for_client():
            if self._socket is not None:
                self._socket.settimeout(STALLED_SECONDS)
            try:
                piece = read_piece(self._stream, most_bytes)
            except BrokenBody as error:
                if isinstance(error.__cause__, TimeoutError):
                    raise ClientStalled(f"nothing of the body came for {STALLED_SECONDS} seconds") from None
                raise
            finally:
                if self._socket is not None:
                    self._socket.settimeout(None)
        self._received_bytes += len(piece)
        note_size(self._received_bytes)
        if self._limit_bytes is not None and self._received_bytes > self._limit_bytes:
            raise too_large(self._limit_bytes)
        if not piece and self._length is not None:
            raise BrokenBody(f"the body ended after {self._received_bytes} of {self._length} bytes")
        return piece

    def _unpacked(self, encoding: str) -> Iterator[bytes]:
        size = 0
        for piece in unpacked_pieces(self._receive, encoding):
            size += len(piece)
            if self._limit_bytes is not None and size > self._limit_bytes:
                raise unpacks_to_more(encoding, self._limit_bytes)
            yield piece


class InvocationsInParts(ScriptInvocations):
    """The same, with bodies that the script reads in parts; none of their connections is kept."""

    def __init__(
        self, deployment: Deployment, bodies: BodyReader, caller: ScriptCaller, watch: DeadlineWatch
    ) -> None:
        super().__init__(deployment, bodies, caller)
        self._watch = watch

    def on_post(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Answer, and drop what the script has not read."""
        if is_triton_type(req.content_type):
            super().on_post(req, resp)
            return
        resp.set_header("Connection", "close")
        body = BodyInParts(req, self._deployment, self._watch)
        file = io.BufferedReader(body, PIECE_BYTES)
        req.context.may_have_more = True
        try:
            with self._bodies.budget() as budget:
                reply = self._caller.answer(self._request(req, b"", budget, file=file))
                pieces = self._pieces(reply, body)
        except RequestError:
            if body.error is not None:  # the script has made another of it
                raise body.error from None
            raise
        write_reply(resp, reply)
        if isinstance(reply.body, bytes):
            resp.content_length = len(reply.body)
        resp.data = None
        resp.stream = AnswerBeforeTheEnd(pieces, req)

    def _pieces(self, reply: ScriptReply, body: BodyInParts) -> Iterable[bytes]:
        """Body of the answer, for which a stream may still read; raises the error of ``body``."""
        if isinstance(reply.body, bytes):
            if body.error is not None:
                raise body.error
            return [reply.body]
        try:
            body.keep()
        except BaseException:
            reply.body.close()
            raise
        return reply.body
