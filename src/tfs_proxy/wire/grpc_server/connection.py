"""One client's connection: its frames become calls, which `open_calls` answers."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from tfs_proxy.wire.grpc_server import call_heads
from tfs_proxy.wire.grpc_server.arrivals import WINDOW_BYTES
from tfs_proxy.wire.grpc_server.calls import Call, peer_of
from tfs_proxy.wire.grpc_server.flood import Flood
from tfs_proxy.wire.grpc_server.frame_protocol import FrameProtocol
from tfs_proxy.wire.grpc_server.header_assembly import HeaderAssembly
from tfs_proxy.wire.grpc_server.open_calls import MOST_CALLS, CallingClient, OpenCalls
from tfs_proxy.wire.grpc_server.running import Calls
from tfs_proxy.wire.grpc_server.untaken_answers import UntakenAnswers
from tfs_proxy.wire.http2 import frames
from tfs_proxy.wire.http2.frames import BrokenFrames, FrameHead
from tfs_proxy.wire.http2.header_blocks import BlockReader
from tfs_proxy.wire.http2.windows import ReceiveWindow
from tfs_proxy.wire.server.bounds import HEAD_SECONDS, OpenConnections, is_readable

_HELLO = frames.hello(
    {
        frames.MAX_CONCURRENT_STREAMS: MOST_CALLS,
        frames.INITIAL_WINDOW_SIZE: WINDOW_BYTES,
        frames.MAX_FRAME_SIZE: frames.MOST_FRAME_BYTES,
        frames.MAX_HEADER_LIST_SIZE: call_heads.MOST_HEADER_BYTES,
    },
    frames.MOST_WINDOW,
)
_BUFFERED_BYTES = 1 << 20
"""Of answers that the system's own buffers do not take; then the client's next frames wait."""
_LONG_BLOCK_BYTES = 1 << 12
_LINGER_SECONDS = 2.0


class GrpcServerState(Protocol):
    """What a connection asks of its server."""

    calls: Calls
    open_connections: OpenConnections
    scratch: memoryview

    def on_opened(self, connection: "GrpcServerConnection") -> None:
        """Know one more connection."""

    def on_closed(self, connection: "GrpcServerConnection") -> None:
        """Forget it."""


class GrpcServerConnection(FrameProtocol):
    """The calls of one client, of any number at a time."""

    def __init__(self, server: GrpcServerState) -> None:
        super().__init__(server.scratch)
        self._server = server
        self._blocks = BlockReader()
        self._window = ReceiveWindow()
        self._headers = HeaderAssembly()
        self._last_stream = 0
        self._is_leaving = False
        self._data_call: Call | None = None
        self._on: Mapping[int, Callable[[FrameHead, bytes], None]] = {
            frames.HEADERS: self._on_headers,
            frames.RST_STREAM: self._on_reset,
            frames.SETTINGS: self._on_settings,
            frames.PING: self._on_ping,
            frames.GOAWAY: self._on_goaway,
            frames.WINDOW_UPDATE: self._on_window_update,
            frames.CONTINUATION: self._on_continuation,
        }

    def connection_made(self, transport: Any) -> None:
        """Greet, if there is room for one more connection."""
        self._transport: asyncio.Transport = transport
        self._loop = loop = asyncio.get_running_loop()
        self._flood = Flood(loop.time)
        client = CallingClient(transport, peer_of(transport), self._flood)
        self._calls = OpenCalls(self._server.calls, client, loop, self._on_over)
        self._sender = self._calls.sender
        self._untaken = UntakenAnswers(transport, loop)
        self._greeting_timer = loop.call_later(HEAD_SECONDS, self._hang_up_unless_greeted)
        self._server.on_opened(self)
        if not self._server.open_connections.add(self):
            transport.abort()
            return
        transport.set_write_buffer_limits(high=_BUFFERED_BYTES)
        transport.write(_HELLO)

    def connection_lost(self, _error: Exception | None) -> None:
        """Let go of everything; nobody takes an answer."""
        self.stop_reading()
        self._greeting_timer.cancel()
        self._untaken.end()
        self._calls.close()
        self._server.open_connections.discard(self)
        self._server.on_closed(self)

    def eof_received(self) -> bool:
        """Whether to stay open until all is answered: a client that sends no more may still read."""
        self._is_leaving = True
        return not self.is_idle

    def pause_writing(self) -> None:
        """Read nothing from a client that does not read either."""
        self._sender.pause()
        self._transport.pause_reading()
        self._untaken.begin()

    def resume_writing(self) -> None:
        """Go on."""
        self._untaken.end()
        self._transport.resume_reading()
        self._sender.resume()

    def drain(self) -> None:
        """Take no more calls, and end once those there are have been answered."""
        if not self._is_leaving:
            self._is_leaving = True
            self._sender.control(frames.goaway(self._last_stream, frames.NO_ERROR))
        self._end_if_done()

    def shed(self) -> None:
        """Close it for another one, or because the server ends."""
        self._transport.abort()

    @property
    def is_idle(self) -> bool:
        """Whether no call is under way."""
        return not self._calls.all

    @property
    def is_owed(self) -> bool:
        """Whether a whole call waits for its answer."""
        return any(call.is_half_closed for call in self._calls.all)

    @property
    def has_unread(self) -> bool:
        """Whether the client has sent what was not looked at."""
        return is_readable(self._transport)

    def on_frame(self, head: FrameHead, payload: bytes) -> None:
        """Take a frame that is not DATA."""
        if self._headers.is_open != (head.kind == frames.CONTINUATION) or head.kind == frames.PUSH_PROMISE:
            raise BrokenFrames(f"a frame of type {head.kind} has no place there")
        self._on.get(head.kind, self._on_other)(head, payload)

    def on_broken(self, error: BrokenFrames) -> None:
        """Say what is wrong, and end."""
        self.stop_reading()
        self._sender.control(frames.goaway(self._last_stream, error.code, str(error)))
        self._calls.close()
        self._transport.close()
        self._loop.call_later(_LINGER_SECONDS, self._transport.abort)

    def on_data_head(self, head: FrameHead, padding: int) -> None:
        """Find the call that a DATA frame belongs to, and count its windows."""
        if self._is_unknown(head.stream):
            raise BrokenFrames("a DATA frame belongs to no call")
        if report := self._window.to_report(head.length):
            self._sender.control(frames.window_update(0, report))
        if self._headers.is_open:
            raise BrokenFrames("a header block breaks off")
        if head.length == padding and not head.flags & frames.END_STREAM:
            self._flood.count()
        self._data_call = call = self._calls.find(head.stream)
        if call is None:
            return
        call.receive_window -= head.length
        if call.is_half_closed or call.receive_window < 0:
            raise BrokenFrames("a DATA frame comes behind the end, or the window", frames.FLOW_CONTROL_ERROR)
        if padding:
            call.receive_window += padding
            self._sender.control(frames.window_update(call.stream, padding))

    def on_data(self, part: memoryview) -> None:
        """Take a part of a message."""
        call = self._data_call
        if call is None or call.is_over or call.trailers is not None:
            return
        call.incoming.take(part)
        if call.incoming.refusal is not None:
            self._sender.refuse(call, call.incoming.refusal)
        elif call.reservation is None:
            self._calls.arrivals.check_size(call)

    def data_room(self, most: int) -> memoryview | None:
        """Where the next bytes of the present message belong."""
        call = self._data_call
        return None if call is None or call.trailers is not None else call.incoming.room(most)

    def on_data_filled(self, count: int) -> None:
        """Count bytes of the present message."""
        if self._data_call is not None:
            self._data_call.incoming.filled(count)

    def on_data_end(self, head: FrameHead) -> None:
        """Run the call if this was its last frame."""
        call, self._data_call = self._data_call, None
        if call is not None and head.flags & frames.END_STREAM:
            self._calls.half_close(call)

    def _on_headers(self, head: FrameHead, payload: bytes) -> None:
        block = self._headers.begin(head, payload)
        if block is not None:
            self._take_block(head, block)

    def _on_continuation(self, head: FrameHead, payload: bytes) -> None:
        whole = self._headers.go_on(head, payload)
        if whole is not None:
            self._take_block(*whole)

    def _take_block(self, head: FrameHead, block: bytes) -> None:
        """Begin a call, unless the block ends one that has begun, or comes too late."""
        if not head.stream % 2:
            raise BrokenFrames("a client's calls have odd numbers")
        headers = self._blocks.read(block)
        if head.stream <= self._last_stream:
            self._take_trailers(head)
        elif not self._is_leaving:
            self._last_stream = head.stream
            if self._calls.is_full:
                self._flood.count()
                self._sender.control(frames.reset(head.stream, frames.REFUSED_STREAM))
                return
            call = self._calls.begin(head.stream, headers, is_long=len(block) > _LONG_BLOCK_BYTES)
            if head.flags & frames.END_STREAM and not call.is_over:
                self._calls.half_close(call)

    def _take_trailers(self, head: FrameHead) -> None:
        call = self._calls.find(head.stream)
        if call is None:
            self._flood.count()
        elif call.is_half_closed or not head.flags & frames.END_STREAM:
            raise BrokenFrames("a call has headers in its midst")
        else:
            self._calls.half_close(call)

    def _on_reset(self, head: FrameHead, payload: bytes) -> None:
        frames.read_reset(payload)
        if self._is_unknown(head.stream):
            raise BrokenFrames("it breaks a call off that has not begun")
        self._flood.count()
        call = self._calls.find(head.stream)
        if call is not None:
            self._calls.drop(call)

    def _on_settings(self, head: FrameHead, payload: bytes) -> None:
        self._flood.count()
        if head.flags & frames.ACK:
            return
        for number, value in frames.read_settings(payload):
            self._sender.set(number, value, self._calls.all)
        self._sender.control(frames.frame(frames.SETTINGS, frames.ACK, 0, b""))

    def _on_ping(self, head: FrameHead, payload: bytes) -> None:
        self._flood.count()
        if not head.flags & frames.ACK:
            self._sender.control(frames.frame(frames.PING, frames.ACK, 0, frames.read_ping(payload)))

    def _on_goaway(self, _head: FrameHead, _payload: bytes) -> None:
        self._is_leaving = True
        self._end_if_done()

    def _on_window_update(self, head: FrameHead, payload: bytes) -> None:
        increment = frames.read_increment(payload)
        call = self._calls.find(head.stream)
        if self.is_idle:
            self._flood.count()
        if not head.stream:
            self._sender.open(increment)
        elif call is not None:
            self._sender.open_stream(call, increment)

    def _on_other(self, _head: FrameHead, _payload: bytes) -> None:
        self._flood.count()

    def _hang_up_unless_greeted(self) -> None:
        if not self.is_greeted:
            self._transport.abort()

    def _is_unknown(self, stream: int) -> bool:
        """Whether no call can have begun there; those behind a GOAWAY may, and are not looked at."""
        return not stream or (stream > self._last_stream and not self._is_leaving)

    def _on_over(self) -> None:
        if self.is_idle:
            self._server.open_connections.use(self)
            self._end_if_done()

    def _end_if_done(self) -> None:
        if self._is_leaving and self.is_idle:
            self._transport.close()
