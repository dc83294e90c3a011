"""Connections to one server, each for one gRPC call at a time, shared by threads and greenlets."""

import socket
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence

from tfs_proxy.errors import NotReached, UpstreamError
from tfs_proxy.wire.error_body import MODEL_SERVER, not_reached
from tfs_proxy.wire.exchange import Deadline
from tfs_proxy.wire.grpc_client.answer import CallAnswer
from tfs_proxy.wire.grpc_client.connection import CallRequest, GrpcConnection, NotBegun
from tfs_proxy.wire.grpc_client.frames import BrokenFrames
from tfs_proxy.wire.grpc_client.header_blocks import Headers
from tfs_proxy.wire.grpc_client.request_headers import request_block
from tfs_proxy.wire.grpc_codes import GrpcCode
from tfs_proxy.wire.protobuf_writer import Piece

CONNECT_SECONDS = 20.0
"""How long a connection may take: a server that is busy is not down."""

_NO_METADATA: Mapping[str, str] = {}

Open = Callable[[float], socket.socket]
"""Opens a connection within a time in seconds; raises OSError."""


class GrpcPool:
    """Calls over kept connections, of which at most ``idle`` wait unused; make it after the fork.

    A call is made again, on a new connection, only if the server has surely not begun it.
    """

    def __init__(
        self,
        open_connection: Open,
        authority: str,
        *,
        idle: int = 256,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._open_connection = open_connection
        self._authority = authority
        self._idle: deque[GrpcConnection] = deque()
        self._most_idle = idle
        self._clock = clock
        self._closed = False

    def call(
        self, path: str, message: Sequence[Piece], seconds: float, metadata: Headers = _NO_METADATA
    ) -> CallAnswer:
        """Call the method at ``path`` within ``seconds``; the answer's message is read-only.

        Raises NotReached if no connection opens, UpstreamUnavailable if one breaks, UpstreamTimeout, and
        UpstreamError for an answer that is not gRPC. A status of the server's own is not raised.
        """
        deadline = Deadline(MODEL_SERVER, seconds, seconds, self._clock)
        request = CallRequest(request_block(path, self._authority, seconds, metadata), message)
        kept = self._take()
        if kept is not None:
            try:
                return self._run(kept, request, deadline)
            except NotBegun:
                self._close_idle()  # the server has left those as well
        try:
            return self._run(self._open(deadline), request, deadline)
        except NotBegun as error:
            raise NotReached(not_reached(MODEL_SERVER)) from error

    def close(self) -> None:
        """Close what is idle; connections in use are closed when they come back."""
        self._closed = True
        self._close_idle()

    def _close_idle(self) -> None:
        while (connection := self._take()) is not None:
            connection.close()

    def _open(self, deadline: Deadline) -> GrpcConnection:
        try:
            return GrpcConnection(self._open_connection(min(CONNECT_SECONDS, deadline.to_read())))
        except (TimeoutError, BlockingIOError) as error:
            deadline.to_read()
            raise NotReached(not_reached(MODEL_SERVER)) from error
        except OSError as error:
            raise NotReached(not_reached(MODEL_SERVER)) from error

    def _take(self) -> GrpcConnection | None:
        while True:
            try:
                kept = self._idle.pop()
            except IndexError:
                return None
            if not kept.ended:
                return kept
            kept.close()

    def _run(self, connection: GrpcConnection, request: CallRequest, deadline: Deadline) -> CallAnswer:
        keeps = False
        try:
            answer = connection.call(request, deadline)
            keeps = connection.usable
            if answer.code is GrpcCode.DEADLINE_EXCEEDED:
                raise deadline.over()
        except BrokenFrames as error:
            raise UpstreamError(f"{MODEL_SERVER}'s answer over gRPC can't be read: {error}.") from error
        finally:
            if keeps and not self._closed and len(self._idle) < self._most_idle:
                self._idle.append(connection)
            else:
                connection.close()
        return answer
