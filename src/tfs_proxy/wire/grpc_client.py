"""Unary gRPC calls over HTTP/2 for threads and greenlets: one call at a time on a connection."""

import socket
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from socket import MSG_WAITALL, SO_RCVTIMEO, SO_SNDTIMEO

from msgspec import Struct

from tfs_proxy.settings.settings import most_answer_bytes
from tfs_proxy.values.errors import NotReached, UpstreamError, UpstreamUnavailable
from tfs_proxy.wire import grpc_frames as frames
from tfs_proxy.wire.connect import has_ended_tcp, set_timeout
from tfs_proxy.wire.error_body import MODEL_SERVER, connection_closed, not_reached
from tfs_proxy.wire.grpc_codes import GrpcCode
from tfs_proxy.wire.grpc_frames import (
    MOST_HEADER_BYTES,
    SMALLER_TABLE,
    BlockReader,
    BrokenFrames,
    FrameHead,
    Headers,
    request_block,
)
from tfs_proxy.wire.grpc_messages import (
    BUFFER_BYTES,
    MOST_MESSAGE_BYTES,
    AnswerReader,
    CallAnswer,
    OutgoingMessage,
    ReceiveBuffer,
    SendWindows,
)
from tfs_proxy.wire.http_client import Deadline
from tfs_proxy.wire.protobuf_writer import Piece

_SETTINGS: Mapping[int, int] = {
    frames.ENABLE_PUSH: 0,
    frames.INITIAL_WINDOW_SIZE: frames.MOST_WINDOW,
    frames.MAX_FRAME_SIZE: frames.MOST_FRAME_BYTES,
    frames.MAX_HEADER_LIST_SIZE: MOST_HEADER_BYTES,
}
_HELLO = frames.PREFACE + frames.hello(_SETTINGS, frames.MOST_WINDOW)
_DEFAULT_TABLE_BYTES = 4096
_MOST_BUFFERS = 512
"""Buffers in one system call; Linux's limit is 1024."""

_MOST_CONTROL_BYTES = 1 << 14
_RENEWED_BYTES = 1 << 28
"""Bytes of DATA after which the server is told that they were read."""


class NotBegun(Exception):
    """The server surely has not begun the call: it may be sent again on another connection."""


class ServerEnded(ConnectionError):
    """The server has closed the connection."""


class CallRequest(Struct, frozen=True):
    """One call: its header block, and its message in pieces that are not copied."""

    block: bytes
    message: Sequence[Piece]


class GrpcConnection:
    """An open connection; `usable` says whether it can make another call."""

    def __init__(self, connection: socket.socket, most_bytes: int = MOST_MESSAGE_BYTES) -> None:
        self._socket = connection
        self._most_bytes = most_bytes
        self._buffer = ReceiveBuffer(self._receive)
        self._blocks = BlockReader()
        self._send_windows = SendWindows()
        self._unreported = 0
        self._stream = -1
        self._goes_away = False
        self._complete = True
        self._unsent = _HELLO
        self._table_update = b""
        self._on_frame: Mapping[int, Callable[[FrameHead], None]] = {
            frames.DATA: self._on_data,
            frames.HEADERS: self._on_headers,
            frames.RST_STREAM: self._on_reset,
            frames.SETTINGS: self._on_settings,
            frames.PUSH_PROMISE: self._on_misplaced,
            frames.PING: self._on_ping,
            frames.GOAWAY: self._on_goaway,
            frames.WINDOW_UPDATE: self._on_window_update,
            frames.CONTINUATION: self._on_misplaced,
        }

    @property
    def usable(self) -> bool:
        """True if the last call ended well, and the server is not closing the connection."""
        return self._complete and not self._goes_away and self._stream + 2 <= frames.MOST_STREAM

    @property
    def ended(self) -> bool:
        """True if the server has closed it, as far as this can be known before something is sent."""
        # A unix socket refuses the next bytes then; TCP accepts them.
        return self._socket.family != socket.AF_UNIX and has_ended_tcp(self._socket)

    def call(self, request: CallRequest, deadline: Deadline) -> CallAnswer:
        """Makes one call, and reads its answer to the end.

        Raises NotBegun, UpstreamUnavailable if the connection breaks, UpstreamTimeout, AnswerTooLarge, and
        BrokenFrames for what is not gRPC. The connection is not `usable` after any of them.
        """
        self._deadline, self._stream, self._sent = deadline, self._stream + 2, False
        self._answer = AnswerReader(self._blocks, self._most_bytes)
        self._send_windows.begin_stream()
        self._complete = False
        message = OutgoingMessage(request.message)
        try:
            self._send_request(request.block, message)
            while not self._answer.ended:
                self._take_frame()
            if self._unsent:
                self._send([])
        except ConnectionError as error:
            if not self._sent:
                raise NotBegun from error
            if not self._answer.ended:
                raise UpstreamUnavailable(connection_closed(MODEL_SERVER)) from error
        else:
            self._complete = not message.remaining
        return self._answer.answer()

    def close(self) -> None:
        """Closes the socket; the server ends a call under way."""
        self._socket.close()

    def _send_request(self, block: bytes, message: OutgoingMessage) -> None:
        block, self._table_update = self._table_update + block, b""
        most = self._send_windows.most_frame_bytes
        buffers: list[Piece] = [frames.header_frames(self._stream, block, most)]
        while message.remaining and not self._answer.ended:
            count = min(message.remaining, self._send_windows.available())
            if count:
                self._send_windows.spend(count)
                pieces = message.take(count)
                last = not message.remaining
                buffers += frames.data_frames(
                    self._stream, pieces, self._send_windows.most_frame_bytes, last=last
                )
            if buffers:
                try:
                    self._send(buffers)
                except ConnectionError:
                    if not self._sent:
                        raise
                    # A server may refuse a request and close before it has read it: its answer has arrived.
                    self._goes_away = True
                    return
                buffers = []
            if message.remaining and not self._send_windows.available():
                self._take_frame()

    def _send(self, buffers: list[Piece]) -> None:
        if self._unsent:
            buffers, self._unsent = [self._unsent, *buffers], b""
        while buffers:
            set_timeout(self._socket, self._deadline.to_write(), SO_SNDTIMEO)
            try:
                count = self._socket.sendmsg(buffers[:_MOST_BUFFERS])
            except (TimeoutError, BlockingIOError) as error:
                raise self._deadline.over() from error
            self._sent = self._sent or bool(count)
            buffers = _after(buffers, count)

    def _receive(self, room: memoryview) -> int:
        if self._unsent:
            self._send([])
        set_timeout(self._socket, self._deadline.to_read(), SO_RCVTIMEO)
        try:
            # One call for all frames: each return of the kernel waits for the interpreter's lock.
            count = self._socket.recv_into(room, 0, MSG_WAITALL if len(room) > BUFFER_BYTES else 0)
        except (TimeoutError, BlockingIOError) as error:
            raise self._deadline.over() from error
        if not count:
            raise ServerEnded
        return count

    def _take_frame(self) -> None:
        head = frames.read_head(self._buffer.read(frames.HEAD_BYTES))
        if head.length > frames.MOST_FRAME_BYTES:
            raise BrokenFrames("a frame is larger than allowed")
        self._on_frame.get(head.kind, self._payload)(head)

    def _payload(self, head: FrameHead) -> bytes:
        """The payload of a frame that is neither DATA nor headers; empty for an unknown frame."""
        if head.length > _MOST_CONTROL_BYTES:
            raise BrokenFrames("a frame is larger than any of its kind")
        return self._buffer.read(head.length)

    def _on_data(self, head: FrameHead) -> None:
        self._check_stream(head)
        count, padding = head.length, 0
        if head.flags & frames.PADDED and count:
            padding = self._buffer.read(1)[0]
            count -= 1 + padding
            if count < 0:
                raise BrokenFrames("a DATA frame is shorter than its padding")
        self._answer.take_data(self._buffer, count)
        self._buffer.read(padding)
        self._unreported += head.length
        if self._unreported >= _RENEWED_BYTES:
            # The message may be as large as the window of its stream: only the connection's is renewed.
            self._unsent += frames.window_update(0, self._unreported)
            self._unreported = 0
        if head.flags & frames.END_STREAM:
            self._answer.end()

    def _on_headers(self, head: FrameHead) -> None:
        self._check_stream(head)
        self._answer.take_headers(self._header_block(head))
        if head.flags & frames.END_STREAM:
            self._answer.end()

    def _header_block(self, head: FrameHead) -> bytes:
        """A whole block, of bounded size and of a bounded number of frames."""
        first, part = head, self._buffer.read(_bounded(head.length))
        block = frames.header_fragment(head, part)
        frames_left = 64
        while not head.flags & frames.END_HEADERS:
            head = frames.read_head(self._buffer.read(frames.HEAD_BYTES))
            frames_left -= 1
            if head.kind != frames.CONTINUATION or head.stream != first.stream or not frames_left:
                raise BrokenFrames("a header block breaks off, or has no end")
            _bounded(len(block) + head.length)
            block += self._buffer.read(head.length)
        return block

    def _on_reset(self, head: FrameHead) -> None:
        code = frames.read_reset(self._payload(head))
        if head.stream != self._stream:
            return  # an earlier call, whose answer has come
        if code == frames.REFUSED_STREAM:
            raise NotBegun
        if code == frames.CANCEL:
            self._deadline.to_read()  # the server keeps the same deadline
        raise BrokenFrames(f"the call was broken off, with HTTP/2's error code {code}")

    def _on_settings(self, head: FrameHead) -> None:
        payload = self._payload(head)
        if head.flags & frames.ACK:
            return
        for number, value in frames.read_settings(payload):
            self._send_windows.set(number, value)
            if number == frames.HEADER_TABLE_SIZE and value < _DEFAULT_TABLE_BYTES:
                self._table_update = SMALLER_TABLE
        self._unsent += frames.frame(frames.SETTINGS, frames.ACK, 0, b"")

    def _on_ping(self, head: FrameHead) -> None:
        payload = frames.read_ping(self._payload(head))
        if not head.flags & frames.ACK:
            self._unsent += frames.frame(frames.PING, frames.ACK, 0, payload)

    def _on_goaway(self, head: FrameHead) -> None:
        self._goes_away = True
        if frames.read_goaway(self._payload(head)) < self._stream:
            raise NotBegun

    def _on_window_update(self, head: FrameHead) -> None:
        increment = frames.read_increment(self._payload(head))
        if head.stream in {0, self._stream}:
            self._send_windows.open(increment, stream=bool(head.stream))

    def _on_misplaced(self, head: FrameHead) -> None:
        raise BrokenFrames(f"a frame of type {head.kind} has no place there")

    def _check_stream(self, head: FrameHead) -> None:
        if head.stream != self._stream:
            raise BrokenFrames(f"a frame belongs to stream {head.stream}, which is not open")


def _bounded(length: int) -> int:
    if length > MOST_HEADER_BYTES:
        raise BrokenFrames("its headers are larger than allowed")
    return length


def _after(buffers: list[Piece], count: int) -> list[Piece]:
    for number, buffer in enumerate(buffers):
        if count < len(buffer):
            return [memoryview(buffer)[count:], *buffers[number + 1 :]]
        count -= len(buffer)
    return []


CONNECT_SECONDS = 20.0
"""Limit for connecting: a busy server is not down."""

_NO_METADATA: Mapping[str, str] = {}

Open = Callable[[float], socket.socket]
"""Opens a connection within a time in seconds. Raises OSError."""


class GrpcPool:
    """Calls over kept connections, of which at most ``idle`` wait unused; create it after forking.

    A call is repeated, on a new connection, only if the server surely has not begun it.
    """

    def __init__(
        self,
        open_connection: Open,
        authority: str,
        *,
        idle: int = 256,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._most_bytes = min(most_answer_bytes(), MOST_MESSAGE_BYTES)
        self._open_connection = open_connection
        self._authority = authority
        self._idle: deque[GrpcConnection] = deque()
        self._most_idle = idle
        self._clock = clock
        self._closed = False

    def call(
        self, path: str, message: Sequence[Piece], seconds: float, metadata: Headers = _NO_METADATA
    ) -> CallAnswer:
        """Calls the method at ``path`` within ``seconds``; the answer's message is read-only.

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
                self._close_idle()  # the server has closed those as well
        try:
            return self._run(self._open(deadline), request, deadline)
        except NotBegun as error:
            raise NotReached(not_reached(MODEL_SERVER)) from error

    def close(self) -> None:
        """Closes idle connections; others are closed when their calls end."""
        self._closed = True
        self._close_idle()

    def _close_idle(self) -> None:
        while (connection := self._take()) is not None:
            connection.close()

    def _open(self, deadline: Deadline) -> GrpcConnection:
        try:
            opened = self._open_connection(min(CONNECT_SECONDS, deadline.to_read()))
            return GrpcConnection(opened, self._most_bytes)
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
