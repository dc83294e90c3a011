"""Data capture of ``/invocations``: chooses requests, and passes them with answers to `data.capture.writer`.

With nginx in front, nginx chooses, since it also keeps the others on the fast path. Answers with an error
status, and incomplete ones, are not recorded.
"""

from collections.abc import Callable, Iterator
from http import HTTPStatus
from typing import Any

import falcon

from tfs_proxy.data.capture.files import is_chosen
from tfs_proxy.data.capture.record import Payload
from tfs_proxy.data.capture.writer import CaptureWriter
from tfs_proxy.serving.script.runner import Stream
from tfs_proxy.values.deployment import CaptureOptions
from tfs_proxy.values.memory import MemoryBudget
from tfs_proxy.wire.header_names import IS_CAPTURED, wsgi_name
from tfs_proxy.wire.routes import INVOCATIONS
from tfs_proxy.worker.body import BodyReader

MARK = wsgi_name(IS_CAPTURED)
"""Key in a WSGI environ of nginx's header for the requests that it chose."""


class Captured:
    """Request that is captured; ``body`` is None until it has been read."""

    __slots__ = ("body",)

    def __init__(self) -> None:
        self.body: bytes | None = None


class CapturedBodies(BodyReader):
    """Stores each body that it reads with the request, if that is chosen."""

    def read(self, req: falcon.Request, budget: MemoryBudget) -> bytes:
        body = super().read(req, budget)
        captured: Captured | None = req.context.get("captured")
        if captured is not None:
            captured.body = body
        return body


class Capturing:
    """Middleware: passes each chosen request and its answer to ``writer``."""

    def __init__(self, options: CaptureOptions, writer: CaptureWriter, *, behind_nginx: bool) -> None:
        self.writer = writer
        self._options = options
        self._behind_nginx = behind_nginx

    def process_resource(
        self, req: falcon.Request, _resp: falcon.Response, _resource: Any, _params: dict[str, Any]
    ) -> None:
        marked = bool(req.env.pop(MARK, ""))
        chosen = marked if self._behind_nginx else is_chosen(self._options)
        if chosen and req.uri_template == INVOCATIONS.path:
            req.context.captured = Captured()

    def process_response(
        self, req: falcon.Request, resp: falcon.Response, _resource: Any, succeeded: bool
    ) -> None:
        """Record the answer; a stream once it has ended."""
        captured: Captured | None = req.context.get("captured")
        if captured is None or captured.body is None or not succeeded:
            return
        if resp.status_code >= HTTPStatus.BAD_REQUEST:
            return
        if resp.stream is None:
            self._add(req, resp.content_type, captured.body, resp.data or b"")
        elif isinstance(resp.stream, Stream):
            resp.stream = CapturedStream(resp.stream, self.writer, captured.body, self._at_end(req, resp))

    def _at_end(self, req: falcon.Request, resp: falcon.Response) -> Callable[[bytes, bytes], None]:
        content_type = resp.content_type
        return lambda body, answer: self._add(req, content_type, body, answer)

    def _add(self, req: falcon.Request, content_type: str | None, body: bytes, answer: bytes) -> None:
        sent, answered = Payload(req.content_type or "", body), Payload(content_type or "", answer)
        self.writer.add(sent, answered, req.get_header)


class CapturedStream:
    """Pieces of a streamed answer; ``end`` gets the request's ``body`` and all of them at the end.

    Pieces kept until then take room of ``writer``. A record without room is dropped; a stream that breaks
    off, or whose client leaves, is not recorded.
    """

    def __init__(
        self, pieces: Stream, writer: CaptureWriter, body: bytes, end: Callable[[bytes, bytes], None]
    ) -> None:
        self._pieces = pieces
        self._writer = writer
        self._body = body
        self._end = end
        self._kept: list[bytes] = []
        self._size = self._taken = 0
        self._is_kept = True
        self._keep(len(body))

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        try:
            piece = next(self._pieces)
        except StopIteration:
            self._record()
            raise
        if self._is_kept and self._keep(len(piece)):
            self._kept.append(piece)
        return piece

    def close(self) -> None:
        self._let_go()
        self._pieces.close()

    def _keep(self, size_bytes: int) -> bool:
        self._size += size_bytes
        self._is_kept = self._writer.take(size_bytes)
        if self._is_kept:
            self._taken += size_bytes
        else:
            self._let_go()
            self._writer.give_up(self._size)
        return self._is_kept

    def _record(self) -> None:
        if self._is_kept:
            answer = b"".join(self._kept)
            self._let_go()
            self._end(self._body, answer)

    def _let_go(self) -> None:
        self._writer.give_back(self._taken)
        self._is_kept, self._taken = False, 0
        self._kept.clear()
