"""Our gRPC server without sockets: bytes in, bytes out, on a clock that jumps."""

import asyncio
import socket
import struct
from collections.abc import Iterator
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.virtual_time import run_in_virtual_time
from tfs_proxy.embedded.core.process_ledger import ProcessLedger, RequestLedger
from tfs_proxy.wire.grpc_client.request_headers import request_block, status_text
from tfs_proxy.wire.grpc_codes import GrpcCode
from tfs_proxy.wire.grpc_server.arriving_message import ArrivingMessage
from tfs_proxy.wire.grpc_server.call_heads import Malformed, read_call_head
from tfs_proxy.wire.grpc_server.calls import Method
from tfs_proxy.wire.grpc_server.connection import GrpcServerConnection
from tfs_proxy.wire.grpc_server.flood import Flood
from tfs_proxy.wire.grpc_server.frame_protocol import SCRATCH_BYTES
from tfs_proxy.wire.grpc_server.running import Calls
from tfs_proxy.wire.grpc_server.statuses import Status, end_block
from tfs_proxy.wire.http2 import frames
from tfs_proxy.wire.http2.frames import BrokenFrames
from tfs_proxy.wire.http2.header_blocks import BlockReader
from tfs_proxy.wire.server.bounds import OpenConnections

PATH = "/test.Service/Echo"
GREETING = frames.PREFACE + frames.frame(frames.SETTINGS, 0, 0, b"")


class Wire:
    """A transport that keeps what is written; ``is_stuck`` says that nobody takes it."""

    def __init__(self) -> None:
        self.sent = b""
        self.is_closed = self.is_stuck = False
        self._socket, self._other = socket.socketpair()

    def write(self, data: bytes) -> None:
        self.sent += data

    def writelines(self, parts: list[bytes]) -> None:
        self.sent += b"".join(parts)

    def abort(self) -> None:
        self.is_closed = True

    close = abort

    def get_extra_info(self, _name: str) -> socket.socket:
        return self._socket

    def get_write_buffer_size(self) -> int:
        return len(self.sent) if self.is_stuck else 0

    def nothing(self, **_limits: int) -> None:
        """Do nothing."""

    set_write_buffer_limits = pause_reading = resume_reading = nothing

    def end(self) -> None:
        self._socket.close()
        self._other.close()


class Here(Executor):
    """Runs at once."""

    def submit(self, run: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        done: Future[Any] = Future()
        done.set_result(run(*args, **kwargs))
        return done


@dataclass
class State:
    """A server of one connection that echoes."""

    ledger: ProcessLedger = field(default_factory=ProcessLedger)
    open_connections: OpenConnections = field(default_factory=lambda: OpenConnections(9))
    scratch: memoryview = field(default_factory=lambda: memoryview(bytearray(SCRATCH_BYTES)))

    def __post_init__(self) -> None:
        methods = {PATH: Method("Echo", run=lambda message, _: bytes(message), at_once=bytes)}
        self.calls = Calls(methods, Here(), self.refuse, lambda: RequestLedger(self.ledger))

    def refuse(self, _name: str, error: BaseException) -> Status:
        return Status(GrpcCode.UNAVAILABLE, str(error))

    def on_opened(self, _connection: GrpcServerConnection) -> None:
        """Know it already."""

    def on_closed(self, _connection: GrpcServerConnection) -> None:
        """Know it already."""


class Client:
    """What is on the other side of one connection; made on a running loop."""

    def __init__(self, state: State | None = None) -> None:
        self.wire = Wire()
        self.connection = GrpcServerConnection(state or State())
        self.connection.connection_made(self.wire)

    def send(self, data: bytes, most: int = SCRATCH_BYTES) -> None:
        """Send in parts of at most so many bytes."""
        while data and not self.wire.is_closed:
            room = self.connection.get_buffer(-1)
            count = min(len(room), len(data), most)
            room[:count] = data[:count]
            self.connection.buffer_updated(count)
            data = data[count:]

    def begin(self, stream: int, length: int, part: bytes = b"") -> None:
        """Begin a call with a message of which only a part comes."""
        payload = struct.pack(">BL", 0, length) + part
        self.send(frames.header_frames(stream, request_block(PATH, "x", 9e6, {}), 1 << 14))
        self.send(frames.frame(frames.DATA, 0, stream, payload))

    def status(self, stream: int) -> str | None:
        """The grpc-status of a call that has ended."""
        reader = BlockReader()
        found = None
        for head, payload in split(self.wire.sent):
            if head.kind == frames.HEADERS:
                found = reader.read(payload).get("grpc-status", found) if head.stream == stream else found
        return found

    def end(self) -> None:
        """Go away."""
        self.connection.connection_lost(None)
        self.wire.end()


def split(content: bytes) -> Iterator[tuple[frames.FrameHead, bytes]]:
    """Frames out of bytes."""
    while content:
        head = frames.read_head(content[: frames.HEAD_BYTES])
        yield head, content[frames.HEAD_BYTES : frames.HEAD_BYTES + head.length]
        content = content[frames.HEAD_BYTES + head.length :]


def whole_call(stream: int, body: bytes, cut: int, pad: int) -> bytes:
    """A call whose message is cut into frames with padding."""
    message = struct.pack(">BL", 0, len(body)) + body
    parts = [message[start : start + cut] for start in range(0, len(message), cut)]
    sent = frames.header_frames(stream, request_block(PATH, "x", 9e6, {}), 30)
    for part in parts:
        payload = bytes([pad]) + part + bytes(pad) if pad else part
        sent += frames.frame(frames.DATA, frames.PADDED if pad else 0, stream, payload)
    return sent + frames.frame(frames.DATA, frames.END_STREAM, stream, b"")


@given(
    st.lists(
        st.tuples(st.integers(0, 70_000), st.integers(1_000, 70_000), st.sampled_from([0, 1, 255])),
        min_size=1,
        max_size=3,
    ),
    st.integers(1, 40_000),
)
def test_calls_are_answered_however_their_bytes_arrive(calls: list[tuple[int, int, int]], most: int) -> None:
    """Frames of any size with any padding, cut anywhere: each message comes back."""
    bodies = {
        2 * at + 1: bytes(number % 251 for number in range(size)) for at, (size, _, _) in enumerate(calls)
    }

    async def scene() -> bytes:
        client = Client()
        client.send(GREETING + frames.window_update(0, 1 << 24) + frames.frame(4, 0, 0, b"\0\4\1\0\0\0"))
        sent = b"".join(whole_call(2 * at + 1, bodies[2 * at + 1], *how[1:]) for at, how in enumerate(calls))
        client.send(sent, max(most, len(sent) // 500))
        client.end()
        return client.wire.sent

    answers = dict.fromkeys(bodies, b"")
    for head, payload in split(run_in_virtual_time(scene())):
        if head.kind == frames.DATA:
            answers[head.stream] += payload

    assert {stream: answer[5:] for stream, answer in answers.items()} == bodies


@given(st.lists(st.binary(max_size=40), max_size=5), st.binary(max_size=300))
def test_no_bytes_do_more_than_end_the_connection(parts: list[bytes], tail: bytes) -> None:
    """Nonsense behind a greeting, as frames of every kind, or as none."""

    async def scene() -> None:
        client = Client()
        client.send(GREETING)
        for kind, part in enumerate(parts):
            client.send(frames.frame(kind, len(part), 1, part))
        client.send(tail)
        client.end()

    run_in_virtual_time(scene())


def test_messages_that_do_not_arrive_are_given_up() -> None:
    """After silence of 30 s, or below 1 KB/s; one that comes is waited for."""

    async def scene() -> list[str | None]:
        client = Client()
        client.send(GREETING)
        client.begin(1, 500_000)
        client.begin(3, 500_000)
        client.begin(5, 500_000)
        for _ in range(60):
            client.send(
                frames.frame(frames.DATA, 0, 3, bytes(10)) + frames.frame(frames.DATA, 0, 5, bytes(3000))
            )
            await asyncio.sleep(1)
        statuses = [client.status(stream) for stream in (1, 3, 5)]
        client.end()
        return statuses

    assert run_in_virtual_time(scene()) == ["4", "4", None]


def test_a_large_message_that_stalls_keeps_no_others_waiting() -> None:
    """It has memory for all of itself at first, later for what has come; and then no more than there is."""

    async def scene() -> list[bool]:
        state = State()
        client = Client(state)
        client.send(GREETING)
        client.begin(1, 900 << 20, bytes(10))
        has_room = [state.ledger.try_reserve(500 << 20)]
        await asyncio.sleep(5)
        has_room.append(state.ledger.try_reserve(990 << 20))
        client.send(frames.frame(frames.DATA, 0, 1, bytes(20 << 19)))
        await asyncio.sleep(5)
        has_room.append(client.status(1) == "14")
        state.ledger.release(990 << 20)
        has_room.append(state.ledger.try_reserve(1 << 40))
        client.end()
        return has_room

    assert run_in_virtual_time(scene()) == [False, True, True, True]


def test_a_client_that_goes_gives_its_memory_back() -> None:
    """In the midst of a large message, and while one waits for room."""

    async def scene() -> bool:
        state = State()
        client = Client(state)
        client.send(GREETING)
        client.begin(1, 900 << 20)
        client.begin(3, 900 << 20)
        await asyncio.sleep(1)
        client.end()
        await asyncio.sleep(10)
        return state.ledger.try_reserve(1 << 40)

    assert run_in_virtual_time(scene())


def test_a_client_that_says_nothing_is_hung_up_on() -> None:
    """One that has greeted is not."""

    async def scene() -> tuple[bool, bool]:
        silent, greeted = Client(), Client()
        silent.send(GREETING[:10])
        greeted.send(GREETING)
        await asyncio.sleep(100)
        silent.end()
        greeted.end()
        return silent.wire.is_closed, greeted.wire.is_closed

    assert run_in_virtual_time(scene()) == (True, False)


def test_a_client_that_takes_nothing_is_given_up() -> None:
    """After a minute, unless it takes a little."""

    async def scene() -> list[bool]:
        stuck, slow = Client(), Client()
        for client in (stuck, slow):
            client.send(GREETING)
            client.wire.is_stuck = True
            client.connection.pause_writing()
        closed = []
        for _ in range(3):
            slow.wire.sent = slow.wire.sent[:-1]
            await asyncio.sleep(50)
            closed.append(stuck.wire.is_closed)
        closed.append(slow.wire.is_closed)
        slow.connection.resume_writing()
        await asyncio.sleep(500)
        closed.append(slow.wire.is_closed)
        stuck.end()
        slow.end()
        return closed

    assert run_in_virtual_time(scene()) == [False, True, True, False, False]


def test_frames_that_carry_nothing_are_counted_against_answers() -> None:
    """Many in a short time are too many, unless calls are answered meanwhile; many in a long time are not."""
    now = 0.0
    flood = Flood(lambda: now)
    for _ in range(200_000):
        flood.count()
        flood.answered()
    for number in range(200_000):
        now = number / 900
        flood.count()
    with pytest.raises(BrokenFrames, match="floods"):
        list(map(Flood.count, [flood] * 20_001))


@given(st.text(max_size=300), st.integers(1_000, 1_400))
def test_a_text_of_any_letters_arrives(text: str, most: int) -> None:
    """Percent-encoded; cut if it is too long, so that the beginning can be read."""
    text = text.encode(errors="ignore").decode()
    block = end_block(Status(GrpcCode.ABORTED, text), most, is_whole_answer=True)
    headers = BlockReader().read(block)
    arrived = status_text(headers)

    assert headers["grpc-status"] == "10"
    assert text.startswith(arrived.rstrip("\ufffd"))
    assert sum(len(name) + len(value) + 32 for name, value in headers.items()) <= most


@given(st.lists(st.binary(max_size=30), max_size=6), st.lists(st.integers(1, 20), min_size=1))
def test_exactly_one_message_is_taken(bodies: list[bytes], sizes: list[int]) -> None:
    """However it is cut; none, a part of one, and more than one are refused."""
    content = b"".join(struct.pack(">BL", 0, len(body)) + body for body in bodies)
    message, turn = ArrivingMessage(), 0
    while content:
        count = sizes[turn % len(sizes)]
        message.take(memoryview(content[:count]))
        content, turn = content[count:], turn + 1
    whole = message.whole()

    assert (None if whole is None else bytes(whole)) == (bodies[0] if len(bodies) == 1 else None)
    assert (message.refusal is None) == (len(bodies) == 1)


@pytest.mark.parametrize(("text", "seconds"), [("20S", 20.0), ("5m", 0.005), ("1H", 3600.0), ("100n", 1e-7)])
def test_a_deadline_is_read(text: str, seconds: float) -> None:
    """In every unit."""
    fields = {":method": "POST", ":path": "/a/b", "content-type": "application/grpc", "grpc-timeout": text}
    assert read_call_head(fields).seconds == pytest.approx(seconds)


@pytest.mark.parametrize(
    "changed", [{"grpc-timeout": "123456789S"}, {"grpc-timeout": ""}, {"connection": "x"}]
)
def test_headers_that_no_call_has_are_refused(changed: dict[str, str]) -> None:
    """As malformed, which breaks the call off."""
    fields = {":method": "POST", ":path": "/a/b", "content-type": "application/grpc", **changed}
    with pytest.raises(Malformed):
        read_call_head(fields)
