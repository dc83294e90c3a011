"""The calls of one connection that are not over yet: from their headers to the end of their answers."""

import asyncio
from collections.abc import Callable, Collection

from msgspec import Struct

from tfs_proxy.wire.grpc_codes import GrpcCode
from tfs_proxy.wire.grpc_server import call_heads
from tfs_proxy.wire.grpc_server.arrivals import WINDOW_BYTES, Arrivals
from tfs_proxy.wire.grpc_server.calls import Call
from tfs_proxy.wire.grpc_server.flood import Flood
from tfs_proxy.wire.grpc_server.running import UNKNOWN_METHOD, CallRunner, Calls
from tfs_proxy.wire.grpc_server.sending import AnswerSender
from tfs_proxy.wire.grpc_server.statuses import Status, refusal_block
from tfs_proxy.wire.http2 import frames
from tfs_proxy.wire.http2.header_blocks import Headers

MOST_CALLS = 1024
"""Of one connection at a time; those count as well that were given up and still run."""
_LONGEST_SECONDS = 1e7
"""Of a timer: a deadline behind it is none."""
_LATE = Status(GrpcCode.DEADLINE_EXCEEDED, "Deadline Exceeded")
_LARGE_HEAD = Status(
    GrpcCode.RESOURCE_EXHAUSTED, f"The headers of a call may have {call_heads.MOST_HEADER_BYTES} bytes."
)


class CallingClient(Struct, frozen=True):
    """Whose calls they are: where they are answered, its name, and what it may send for nothing."""

    transport: asyncio.WriteTransport
    peer: str
    flood: Flood


class OpenCalls:
    """Begins, answers and ends calls, on the loop's thread; ``on_over`` is told of the end of each."""

    def __init__(
        self,
        calls: Calls,
        client: CallingClient,
        loop: asyncio.AbstractEventLoop,
        on_over: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._client = client
        self._methods = calls.methods
        self._on_over = on_over
        self._open: dict[int, Call] = {}
        self.sender = AnswerSender(client.transport, self._on_sent)
        self._runner = CallRunner(calls, self.sender, loop)
        self.arrivals = Arrivals(self.sender, calls.reserve, calls.refuse, loop)

    def find(self, stream: int) -> Call | None:
        """The call on a stream, if it is open."""
        return self._open.get(stream)

    @property
    def all(self) -> Collection[Call]:
        """Every open call."""
        return self._open.values()

    @property
    def is_full(self) -> bool:
        """Whether no more may begin."""
        return len(self._open) + self._runner.abandoned >= MOST_CALLS

    def begin(self, stream: int, headers: Headers, *, is_long: bool) -> Call:
        """Begin a call, or refuse it at once; the size of headers is looked at if their block ``is_long``."""
        call = self._open[stream] = Call(stream, self._client.peer, self._loop.time())
        call.send_window, call.receive_window = self.sender.initial_window, WINDOW_BYTES
        self.arrivals.begin(call)
        try:
            head = call_heads.read_call_head(headers)
        except call_heads.Malformed:
            self.break_off(call, frames.PROTOCOL_ERROR)
            return call
        except call_heads.NotACall as error:
            self.sender.end_http(call, refusal_block(error.status))
            return call
        call.method, call.encoding = self._methods.get(head.path), head.encoding
        if is_long and call_heads.list_bytes(headers) > call_heads.MOST_HEADER_BYTES:
            self.sender.refuse(call, _LARGE_HEAD)
        elif call.method is None:
            self.sender.refuse(call, UNKNOWN_METHOD)
        elif head.seconds is not None:
            call.timer = self._loop.call_later(min(head.seconds, _LONGEST_SECONDS), self._on_late, call)
        return call

    def half_close(self, call: Call) -> None:
        """Take that the client sends no more, and run the call."""
        call.is_half_closed = True
        self.arrivals.end(call)
        if call.trailers is None and not call.is_over:
            self._runner.run(call)

    def break_off(self, call: Call, code: int) -> None:
        """End a call without an answer."""
        self.sender.control(frames.reset(call.stream, code))
        self.drop(call)

    def drop(self, call: Call) -> None:
        """Forget a call that is over."""
        if self._open.pop(call.stream, None) is not None:
            self.arrivals.end(call)
            self.sender.forget(call)
            self._runner.give_up(call)
            self._on_over()

    def close(self) -> None:
        """Forget all of them."""
        for call in list(self._open.values()):
            self.drop(call)
        self.arrivals.close()

    def _on_late(self, call: Call) -> None:
        if call.trailers is None:
            self.sender.refuse(call, _LATE)
        else:
            self.break_off(call, frames.CANCEL)

    def _on_sent(self, call: Call) -> None:
        if not call.is_half_closed:
            self.sender.control(frames.reset(call.stream, frames.NO_ERROR))
        self._client.flood.answered()
        self.drop(call)
