"""A body that a script reads while the client sends it, and an answer that begins before the body ends."""

import errno
import io
import logging
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any

import falcon

from tfs_proxy.observe.request_record import READ, note_size, stage
from tfs_proxy.serving.script.deadline import DeadlineWatch
from tfs_proxy.serving.script.handlers import ScriptCaller
from tfs_proxy.serving.script.runner import ScriptReply, Stream
from tfs_proxy.settings.rows import LONGER_SECONDS, STALLED_SECONDS
from tfs_proxy.values.deployment import Deployment
from tfs_proxy.values.errors import ClientStalled, RequestError
from tfs_proxy.values.memory import MEGABYTE
from tfs_proxy.wire.packed_body import read_encoding, unpacked_pieces, unpacks_to_more
from tfs_proxy.worker.body import AnswerBeforeTheEnd, BodyReader, BrokenBody, too_large
from tfs_proxy.worker.gunicorn_workers.arriving_bytes import arriving_bytes
from tfs_proxy.worker.gunicorn_workers.read_ahead import ReadAhead, is_silent, waiting_file
from tfs_proxy.worker.inference_protocol.answers import ScriptInference
from tfs_proxy.worker.inference_protocol.framing import is_triton_type
from tfs_proxy.worker.invocations import ScriptInvocations
from tfs_proxy.worker.script_reply import write_reply

log = logging.getLogger(__name__)

PIECE_BYTES = 64 * 1024
WAITS_SECONDS = 0.1
"""Time without a byte, after everything has been read, from which on a client seems to wait for an answer."""

MOST_UNREAD_BYTES = 64 * MEGABYTE
"""Size of an answer from which on a script that has stopped reading seems to want no more."""


class ArrivingBody(io.RawIOBase):
    """Body of ``req`` as a raw file; ``file`` is what the script gets.

    Its reads raise PayloadTooLarge beyond the limit, BrokenBody if the body ends early, ClientStalled if
    nothing comes for too long, and the errors of `unpacked_pieces`; after one, all of them do, and it is
    ``error``. The time in which a read waits is not the script's.
    ``at_end`` says that all of it has come, ``is_sound`` that no read can raise any more.
    Raises PayloadTooLarge and UnsupportedMediaType.
    """

    def __init__(self, req: falcon.Request, deployment: Deployment, watch: DeadlineWatch) -> None:
        self._length, self._limit_bytes = req.content_length, deployment.max_arriving_bytes
        if self._limit_bytes is not None and (self._length or 0) > self._limit_bytes:
            raise too_large(self._limit_bytes)
        encoding = read_encoding(req.get_header("Content-Encoding"))
        self._source = arriving_bytes(req.stream)
        self._socket = req.env.get("gunicorn.socket")
        self._ahead: ReadAhead | None = None
        # nginx ends the request of a client that stalls, but may stall itself while an answer is sent.
        self._stalled_seconds = STALLED_SECONDS + (0 if deployment.counts_requests else LONGER_SECONDS)
        self._is_batch = deployment.is_batch
        self._watch = watch
        self._pieces = (
            iter(lambda: self._receive(PIECE_BYTES), b"") if encoding is None else self._unpacked(encoding)
        )
        self._left = memoryview(b"")
        self._is_peeking = False
        self.received_bytes = 0
        self.at_end = self.is_sound = self._length == 0
        self._is_packed = encoding is not None
        self.error: RequestError | None = None
        self.file = io.BufferedReader(self, PIECE_BYTES)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        """Read what has come, or wait for it; 0 at the end."""
        if self._is_peeking:
            return None
        if self.error is not None:
            raise self.error
        try:
            while not self._left:
                piece = next(self._pieces, None)
                if piece is None:
                    self.is_sound = True
                    return 0
                self._left = memoryview(piece)
        except RequestError as error:
            log.warning("a body that was read as it arrived: %s, after %d bytes", error, self.received_bytes)
            self.error = error
            raise
        count = min(len(buffer), len(self._left))
        buffer[:count], self._left = self._left[:count], self._left[count:]
        return count

    def is_awaited(self) -> bool:
        """True if the script has read all that has come, and nothing more comes for `WAITS_SECONDS`.

        No client of a batch transform job waits for an answer before it has sent everything.
        """
        if self.file.closed:
            return True
        self._is_peeking = True
        try:
            has_more = bool(self._left or self.file.peek(1)) or not self._source.is_dry()
        finally:
            self._is_peeking = False
        if has_more or self.at_end or self._is_batch or self._socket is None:
            return False
        return is_silent(self._socket, WAITS_SECONDS)

    def read_ahead(self) -> None:
        """Take what comes from here on at once, since the answer begins."""
        if self._socket is not None and not self.at_end:
            self._ahead = ReadAhead(self._socket, self._stalled_seconds)
            self._source.read_from(self._ahead)
            self._socket = None

    def end(self) -> None:
        """Stop to read ahead, and drop the rest."""
        if self._ahead is not None:
            self._ahead.end(at_once=self.at_end)

    def discard(self, most_bytes: int) -> bool:
        """Read and drop some of the rest; False at its end, or if it can't be read."""
        with suppress(Exception):
            return self.error is None and not self.at_end and bool(self._source.receive(most_bytes))
        return False

    def _receive(self, most_bytes: int) -> bytes:
        if self.at_end:
            return b""
        with stage(READ), self._watch.waiting_for_client():
            piece = self._from_client(most_bytes)
        self.received_bytes += len(piece)
        note_size(self.received_bytes)
        if self._limit_bytes is not None and self.received_bytes > self._limit_bytes:
            raise too_large(self._limit_bytes)
        if not piece and self._length is not None:
            raise BrokenBody(f"the body ended after {self.received_bytes} of {self._length} bytes")
        self.at_end = not piece or self.received_bytes == self._length
        self.is_sound = self.at_end and not self._is_packed
        return piece

    def _from_client(self, most_bytes: int) -> bytes:
        if self._socket is not None:
            self._socket.settimeout(self._stalled_seconds)
        try:
            return self._source.receive(most_bytes)
        except TimeoutError:
            raise ClientStalled(f"nothing of the body came for {self._stalled_seconds} seconds") from None
        except Exception as error:
            raise BrokenBody("the body ended early, or its chunks are malformed") from error
        finally:
            if self._socket is not None:
                self._socket.settimeout(None)

    def _unpacked(self, encoding: str) -> Iterator[bytes]:
        size = 0
        for piece in unpacked_pieces(self._receive, encoding):
            size += len(piece)
            if self._limit_bytes is not None and size > self._limit_bytes:
                raise unpacks_to_more(encoding, self._limit_bytes)
            yield piece


class EarlyAnswer:
    """Pieces of an answer whose script may still read ``body`` when it yields the first.

    They are held back until the body has been read, or its client seems to wait for an answer: most read only
    when they have sent all. Raises what the script raises until then, and the body's error.
    """

    def __init__(self, pieces: Stream, body: ArrivingBody) -> None:
        self._pieces, self._body = pieces, body
        self._held = waiting_file()
        try:
            self._hold()
        except BaseException:
            self.close()
            raise

    def _hold(self) -> None:
        body = self._body
        held_bytes = read_bytes = unread_bytes = 0
        while (piece := self._pieces.more()) is not None:
            held_bytes += self._held.write(piece)
            if body.received_bytes > read_bytes:
                read_bytes, unread_bytes = body.received_bytes, held_bytes
            if body.error is not None:
                break
            if body.is_sound or held_bytes - unread_bytes > MOST_UNREAD_BYTES or body.is_awaited():
                break
        if body.error is not None:
            raise body.error
        self._held.seek(0)
        body.read_ahead()

    def __iter__(self) -> Iterator[bytes]:
        yield from iter(lambda: self._held.read(PIECE_BYTES), b"")
        yield from self._pieces
        if self._body.error is not None:  # the script has swallowed it
            raise ConnectionResetError(errno.ECONNRESET, "the body of a streamed answer's request broke off")

    def close(self) -> None:
        """Close the file and the script's generator, and drop the rest of the body."""
        self._held.close()
        self._pieces.close()
        self._body.end()


class ArrivingInvocations(ScriptInvocations):
    """The same, with bodies that the script reads as they arrive; none of their connections is kept."""

    def __init__(
        self,
        deployment: Deployment,
        bodies: BodyReader,
        caller: ScriptCaller,
        inference: ScriptInference,
        watch: DeadlineWatch,
    ) -> None:
        super().__init__(deployment, bodies, caller, inference)
        self._watch = watch

    def on_post(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Answer, and drop what the script has not read."""
        if is_triton_type(req.content_type):
            super().on_post(req, resp)
            return
        resp.set_header("Connection", "close")
        body = ArrivingBody(req, self._deployment, self._watch)
        req.context.discard = body.discard
        try:
            with self._bodies.budget(req) as budget:
                reply = self._caller.answer(self._request(req, b"", budget, body.file))
                pieces = self._pieces(reply, body)
        except RequestError:
            if body.error is not None:  # the script has made another of it
                raise body.error from None
            raise
        write_reply(resp, reply)
        if isinstance(reply.body, bytes):
            resp.content_length = len(reply.body)
        resp.data, resp.stream = None, AnswerBeforeTheEnd(pieces, req)

    def _pieces(self, reply: ScriptReply, body: ArrivingBody) -> Iterable[bytes]:
        """Body of the answer; raises the error of ``body`` if the script has swallowed it."""
        if isinstance(reply.body, Stream) and self._caller.answers_while_reading and not body.is_sound:
            return EarlyAnswer(reply.body, body)
        if body.error is not None:
            raise body.error
        return [reply.body] if isinstance(reply.body, bytes) else reply.body
