"""What one connection sends: answers as far as its client's windows let them, several calls in turn."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable

from tfs_proxy.wire.grpc_server.calls import Call
from tfs_proxy.wire.grpc_server.statuses import HEAD_BLOCK, OK_BLOCK, Status, end_block
from tfs_proxy.wire.http2 import frames
from tfs_proxy.wire.http2.messages import PREFIX, OutgoingMessage
from tfs_proxy.wire.http2.windows import opened
from tfs_proxy.wire.protobuf_writer import Piece

_TURN_BYTES = 1 << 20
"""What a call sends before another one has its turn."""
_USUAL_HEADER_BYTES = 1 << 13
"""What clients of gRPC take of trailers, unless they say something else."""
_LEAST_HEADER_BYTES, _MOST_HEADER_BYTES = 1 << 10, 1 << 18
_LAST = frames.END_HEADERS | frames.END_STREAM


class AnswerSender:
    """Sends for one connection, on its loop's thread; ``on_sent`` is told of each call that is done."""

    def __init__(self, transport: asyncio.WriteTransport, on_sent: Callable[[Call], None]) -> None:
        self._transport = transport
        self._on_sent = on_sent
        self._window = self.initial_window = frames.DEFAULT_WINDOW
        self._most_frame_bytes = frames.LEAST_FRAME_BYTES
        self._most_header_bytes = _USUAL_HEADER_BYTES
        self._ready: deque[Call] = deque()
        self._blocked: dict[Call, None] = {}
        self.is_paused = False

    def control(self, frame: bytes) -> None:
        """Send a frame that no window holds back."""
        self._transport.write(frame)

    def answer(self, call: Call, message: bytes) -> None:
        """Send the one message of a call, and that all is well."""
        size = PREFIX.size + len(message)
        if size > min(self._most_frame_bytes, self._window, call.send_window) or self.is_paused:
            self.message(call, message)
            self.end(call, OK_BLOCK)
            return
        # PERF: a usual answer goes out in one piece.
        self._window -= size
        parts = (
            frames.frame_head(len(HEAD_BLOCK), frames.HEADERS, frames.END_HEADERS, call.stream),
            HEAD_BLOCK,
            frames.frame_head(size, frames.DATA, 0, call.stream),
            PREFIX.pack(0, len(message)),
            message,
            frames.frame_head(len(OK_BLOCK), frames.HEADERS, _LAST, call.stream),
            OK_BLOCK,
        )
        self._transport.write(b"".join(parts))
        self._on_sent(call)

    def message(self, call: Call, message: bytes) -> None:
        """Send one message of a call as soon as may be."""
        if call.outgoing is None:
            call.outgoing = deque()
        call.outgoing.append(OutgoingMessage([message]))
        self._queue([call])

    def end(self, call: Call, trailers: bytes) -> None:
        """Send the trailers behind what is still to be sent."""
        call.trailers = trailers
        self._queue([call])

    def refuse(self, call: Call, status: Status) -> None:
        """End a call with a status that is not OK."""
        is_whole_answer = not (call.began or call.outgoing)
        call.began = True if is_whole_answer else call.began
        self.end(call, end_block(status, self._most_header_bytes, is_whole_answer=is_whole_answer))

    def end_http(self, call: Call, block: bytes) -> None:
        """End what is no call of gRPC with an answer of HTTP alone."""
        call.began = True
        self.end(call, block)

    def forget(self, call: Call) -> None:
        """Send nothing more of a call."""
        self._blocked.pop(call, None)

    def pause(self) -> None:
        """The client does not take what was sent."""
        self.is_paused = True

    def resume(self) -> None:
        """The client takes more."""
        self.is_paused = False
        self._send()

    def set(self, number: int, value: int, calls: Iterable[Call]) -> None:
        """Take a setting of the client over, whose ``calls`` are open; raises BrokenFrames."""
        if number == frames.MAX_FRAME_SIZE:
            self._most_frame_bytes = value
        elif number == frames.MAX_HEADER_LIST_SIZE:
            self._most_header_bytes = min(max(value, _LEAST_HEADER_BYTES), _MOST_HEADER_BYTES)
        elif number == frames.INITIAL_WINDOW_SIZE:
            for call in calls:
                call.send_window = opened(call.send_window, value - self.initial_window)
            self.initial_window = value
            self._queue(list(self._blocked))

    def open(self, increment: int) -> None:
        """Open the connection's window; raises BrokenFrames."""
        self._window = opened(self._window, increment)
        self._queue(list(self._blocked))

    def open_stream(self, call: Call, increment: int) -> None:
        """Open a call's window; raises BrokenFrames."""
        call.send_window = opened(call.send_window, increment)
        if call in self._blocked:
            self._queue([call])

    def _queue(self, calls: Iterable[Call]) -> None:
        for call in calls:
            self._blocked.pop(call, None)
            if not call.is_queued:
                call.is_queued = True
                self._ready.append(call)
        self._send()

    def _send(self) -> None:
        while self._ready and not self.is_paused:
            call = self._ready.popleft()
            call.is_queued = False
            if not call.is_over:
                self._send_some(call)

    def _send_some(self, call: Call) -> None:
        """Send a call's next part, and see to the rest."""
        buffers: list[Piece] = []
        if not call.began:
            call.began = True
            buffers.append(frames.frame(frames.HEADERS, frames.END_HEADERS, call.stream, HEAD_BLOCK))
        left = call.outgoing[0] if call.outgoing else None
        if left is not None and call.outgoing is not None:
            buffers += self._next_frames(call, left)
            if not left.remaining:
                call.outgoing.popleft()
        is_done = not call.outgoing and call.trailers is not None
        if is_done and call.trailers is not None:
            buffers.append(
                frames.header_frames(call.stream, call.trailers, self._most_frame_bytes, frames.END_STREAM)
            )
        self._transport.writelines(buffers)
        if is_done:
            self._on_sent(call)
        elif call.outgoing:
            self._wait_for_turn(call)

    def _next_frames(self, call: Call, message: OutgoingMessage) -> list[Piece]:
        count = max(0, min(message.remaining, self._window, call.send_window, _TURN_BYTES))
        self._window -= count
        call.send_window -= count
        return frames.data_frames(call.stream, message.take(count), self._most_frame_bytes, last=False)

    def _wait_for_turn(self, call: Call) -> None:
        if min(self._window, call.send_window) <= 0:
            self._blocked[call] = None
        else:
            call.is_queued = True
            self._ready.append(call)
