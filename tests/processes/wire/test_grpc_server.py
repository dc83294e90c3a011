"""Our gRPC server before clients that are not ours: grpcio's, one on `h2`, and ones that misbehave."""

import asyncio
import gzip
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent import futures
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import pytest
import uvloop
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import DataReceived, StreamEnded, StreamReset, TrailersReceived
from hpack import Encoder

from support.archives import has_nginx
from tfs_proxy.embedded.core.process_ledger import ProcessLedger, RequestLedger
from tfs_proxy.supervisor.nginx import config as nginx_config
from tfs_proxy.wire.connect import connect_unix_patiently
from tfs_proxy.wire.grpc_client.pool import GrpcPool
from tfs_proxy.wire.grpc_codes import GrpcCode
from tfs_proxy.wire.grpc_server.calls import Call, Method
from tfs_proxy.wire.grpc_server.running import Calls
from tfs_proxy.wire.grpc_server.server import GrpcServer
from tfs_proxy.wire.grpc_server.statuses import Status
from tfs_proxy.wire.http2 import frames
from tfs_proxy.wire.protobuf_writer import Piece

METHOD, QUICK, STREAM = "/test.Service/Method", "/test.Service/Quick", "/test.Service/Stream"
SECONDS = 20.0
LARGE = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
CAFE = "caf\u00e9 100% " + "x" * 3_000


class Refused(Exception):
    """What a method fails with on purpose."""


@dataclass
class Served:
    """A running server, and what its methods have seen."""

    path: Path
    port: int
    loop: asyncio.AbstractEventLoop
    server: GrpcServer
    ledger: ProcessLedger
    thread: threading.Thread | None = None
    clients: list[socket.socket] = field(default_factory=list)
    opens: threading.Event = field(default_factory=threading.Event)
    begun: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    given_up: threading.Event = field(default_factory=threading.Event)

    def answer(self, message: Piece, call: Call) -> bytes:
        """Echo, or what the first word of the message says."""
        word = bytes(message[:10]).partition(b" ")[0]
        if word == b"refuse":
            raise Refused
        if word == b"wait":
            call.add_callback(self.given_up.set)
            self.begun.release()
            self.opens.wait(SECONDS)
        if word == b"peer":
            return call.peer().encode()
        return bytes(message)

    def count(self, message: Piece, call: Call, send: Callable[[bytes | None], None]) -> None:
        """Three messages, of which the client has as many as it asks for."""
        for number in range(3):
            send(bytes(message) * number)
        if bytes(message) == b"bad":
            call.set_status(Status(GrpcCode.ABORTED, "enough"))
        send(None)


def start(path: Path) -> Served:
    """A server at a unix socket and a port, on a loop of its own thread."""
    loop, ledger = uvloop.new_event_loop(), ProcessLedger(wait_seconds=0.2)
    threads = futures.ThreadPoolExecutor(8)
    served = Served(path, 0, loop, None, ledger)  # type: ignore[arg-type]
    methods = {
        METHOD: Method("Method", run=served.answer),
        QUICK: Method("Quick", run=served.answer, at_once=lambda message: bytes(message) or None),
        STREAM: Method("Stream", stream=served.count),
    }

    def refuse(_name: str, error: BaseException) -> Status:
        if isinstance(error, Refused):
            return Status(GrpcCode.INVALID_ARGUMENT, CAFE)
        return Status(GrpcCode.INTERNAL, type(error).__name__)

    async def open_all() -> int:
        served.server = GrpcServer(Calls(methods, threads, refuse, lambda: RequestLedger(ledger)))
        at_path = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        at_path.bind(str(path))
        at_port = socket.create_server(("127.0.0.1", 0))
        await served.server.open(at_path)
        await served.server.open(at_port)
        return int(at_port.getsockname()[1])

    served.thread = threading.Thread(target=loop.run_forever, daemon=True)
    served.thread.start()
    served.port = asyncio.run_coroutine_threadsafe(open_all(), loop).result(SECONDS)
    return served


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    """A running server."""
    started = start(tmp_path / "s")
    yield started
    started.opens.set()
    started.loop.call_soon_threadsafe(started.server.drain)
    started.loop.call_soon_threadsafe(started.server.cut_off)
    asyncio.run_coroutine_threadsafe(started.server.drained(), started.loop).result(SECONDS)
    started.loop.call_soon_threadsafe(started.loop.stop)
    if started.thread is not None:
        started.thread.join(SECONDS)
    started.loop.close()
    for client in started.clients:
        client.close()


@pytest.fixture
def channel(served: Served) -> Iterator[grpc.Channel]:
    """grpcio's client of it."""
    with grpc.insecure_channel(f"127.0.0.1:{served.port}", LARGE) as opened:
        yield opened


def call(channel: grpc.Channel, message: bytes, method: str = METHOD, **options: Any) -> bytes:
    """What grpcio is answered."""
    answer: bytes = channel.unary_unary(method)(message, **{"timeout": SECONDS, **options})
    return answer


def failure(channel: grpc.Channel, message: bytes, method: str = METHOD, **options: Any) -> tuple[str, str]:
    """The code and the text that a call of grpcio's fails with."""
    with pytest.raises(grpc.RpcError) as caught:
        call(channel, message, method, **options)
    return caught.value.code().name, caught.value.details()


@pytest.mark.parametrize("size", [0, 1, 16_379, 65_531, 106_000, 1_048_576, 5_000_000, 120_000_000])
def test_messages_of_every_size(served: Served, channel: grpc.Channel, size: int) -> None:
    """Through windows and frames of any size, both ways, for grpcio and for our own client."""
    message = (bytes(range(251)) * (size // 251 + 1))[:size]
    pool = GrpcPool(partial(connect_unix_patiently, served.path), "localhost")
    for _ in range(1 if size > 10_000_000 else 3):
        assert call(channel, message) == message
        assert bytes(pool.call(METHOD, [message], SECONDS).message) == message
        assert call(channel, message, QUICK) == message
    pool.close()


def test_many_calls_at_a_time_on_one_connection(channel: grpc.Channel) -> None:
    """Each gets its own answer, large and small ones among each other."""
    sent = [str(number).encode() * (1 + number * 997 % 40_000) for number in range(300)]
    with futures.ThreadPoolExecutor(16) as threads:
        methods = [METHOD, QUICK] * 150
        assert list(threads.map(partial(call, channel), sent, methods)) == sent


def test_a_call_that_fails_tells_why(channel: grpc.Channel) -> None:
    """Code and text of any letters; methods that are not there; and the next call is answered."""
    assert failure(channel, b"refuse ") == ("INVALID_ARGUMENT", CAFE)
    assert failure(channel, b"", "/test.Service/Other") == ("UNIMPLEMENTED", "Method not found!")
    assert failure(channel, b"", "/Other") == ("UNIMPLEMENTED", "Method not found!")
    assert call(channel, b"after") == b"after"


def test_a_text_longer_than_the_client_takes_is_cut(served: Served) -> None:
    """A client fails on too long trailers without a word of them."""
    with grpc.insecure_channel(
        f"unix:{served.path}", [("grpc.max_metadata_size", 2_000), ("grpc.absolute_max_metadata_size", 2_000)]
    ) as channel:
        code, text = failure(channel, b"refuse ")
    assert code == "INVALID_ARGUMENT"
    assert CAFE.startswith(text)
    assert 1_000 < len(text) < 2_000


def test_metadata_of_any_kind_is_taken(channel: grpc.Channel) -> None:
    """Binary and long headers do no harm; more than a client may send fails that call alone."""
    metadata = [("trace-bin", bytes(range(256))), ("long", "y" * 20_000)]
    assert call(channel, b"a", metadata=metadata) == b"a"
    assert failure(channel, b"a", metadata=[("long", "y" * 70_000)])[0] == "RESOURCE_EXHAUSTED"
    assert call(channel, b"after") == b"after"


def test_who_calls_is_known(served: Served, channel: grpc.Channel) -> None:
    """The address over TCP; over a unix socket that it is one."""
    assert call(channel, b"peer").startswith(b"ipv4:127.0.0.1:")
    with grpc.insecure_channel(f"unix:{served.path}") as other:
        assert call(other, b"peer") == b"unix:"


@pytest.mark.parametrize("how", [grpc.Compression.Gzip, grpc.Compression.Deflate])
def test_packed_messages_are_read(channel: grpc.Channel, how: grpc.Compression) -> None:
    """In both ways that gRPC names."""
    assert call(channel, b"abc" * 10_000, compression=how) == b"abc" * 10_000


def test_a_message_that_unpacks_to_too_much_is_refused(channel: grpc.Channel) -> None:
    """Before it takes the memory."""
    assert failure(channel, bytes(101 << 20), compression=grpc.Compression.Gzip)[1] == "PayloadTooLarge"


def test_a_stream_is_answered_message_by_message(channel: grpc.Channel) -> None:
    """In order, and with the status at its end."""
    assert list(channel.unary_stream(STREAM)(b"ab", timeout=SECONDS)) == [b"", b"ab", b"abab"]
    messages = []
    with pytest.raises(grpc.RpcError) as caught:
        messages.extend(channel.unary_stream(STREAM)(b"bad", timeout=SECONDS))
    assert (caught.value.code().name, caught.value.details()) == ("ABORTED", "enough")


def test_one_message_is_wanted(channel: grpc.Channel) -> None:
    """None and two are refused as gRPC says."""
    for messages in ([], [b"a", b"b"], [b"x" * 50_000, b"b"]):
        with pytest.raises(grpc.RpcError) as caught:
            channel.stream_unary(METHOD)(iter(messages), timeout=SECONDS)
        assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


def test_a_deadline_ends_a_call(served: Served, channel: grpc.Channel) -> None:
    """Its handler learns it; others go on."""
    assert failure(channel, b"wait ", timeout=0.3)[0] == "DEADLINE_EXCEEDED"
    assert served.given_up.wait(SECONDS)
    assert call(channel, b"after") == b"after"


def test_a_call_that_is_given_up_ends(served: Served, channel: grpc.Channel) -> None:
    """The handler learns it."""
    running = channel.unary_unary(METHOD).future(b"wait ", timeout=SECONDS)
    assert served.begun.acquire(timeout=SECONDS)
    running.cancel()
    assert served.given_up.wait(SECONDS)
    assert call(channel, b"after") == b"after"


def test_what_has_begun_is_answered_at_the_end(served: Served, channel: grpc.Channel) -> None:
    """No new connection is taken; the call that runs has its answer, then the connections close."""
    running = channel.unary_unary(METHOD).future(b"wait on", timeout=SECONDS)
    assert served.begun.acquire(timeout=SECONDS)
    served.loop.call_soon_threadsafe(served.server.drain)
    drained = asyncio.run_coroutine_threadsafe(served.server.drained(), served.loop)
    with grpc.insecure_channel(f"unix:{served.path}") as other:
        assert failure(other, b"late")[0] == "UNAVAILABLE"
    assert not drained.done()
    served.opens.set()
    assert running.result() == b"wait on"
    drained.result(SECONDS)


def test_large_messages_wait_for_memory(served: Served, channel: grpc.Channel) -> None:
    """One that has no room in time is refused before it is sent; small ones need none."""
    assert served.ledger.try_reserve(1 << 40)
    assert failure(channel, bytes(2 << 20)) == ("INTERNAL", "Overloaded")
    assert call(channel, b"small") == b"small"
    served.ledger.release(1 << 40)
    assert call(channel, bytes(2 << 20)) == bytes(2 << 20)
    assert served.ledger.try_reserve(1 << 40)


class Raw:
    """A client that sends any bytes."""

    def __init__(self, served: Served) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.settimeout(SECONDS)
        self.socket.connect(str(served.path))
        served.clients.append(self.socket)

    def begin(self, *sent: bytes) -> None:
        """Greet, and send."""
        self.socket.sendall(frames.PREFACE + frames.frame(frames.SETTINGS, 0, 0, b"") + b"".join(sent))

    def goaway(self) -> int:
        """The code with which the server ends the connection."""
        received = b""
        with suppress(ConnectionError):
            while part := self.socket.recv(1 << 16):
                received += part
        found = None
        while len(received) >= frames.HEAD_BYTES:
            head = frames.read_head(received[: frames.HEAD_BYTES])
            payload = received[frames.HEAD_BYTES : frames.HEAD_BYTES + head.length]
            received = received[frames.HEAD_BYTES + head.length :]
            if head.kind == frames.GOAWAY:
                found = struct.unpack(">LL", payload[:8])[1]
        assert found is not None
        return int(found)


FIELDS = [
    (":method", "POST"),
    (":scheme", "http"),
    (":path", METHOD),
    (":authority", "x"),
    ("content-type", "application/grpc+proto"),
    ("te", "trailers"),
]


def block(fields: list[tuple[str, str]] = FIELDS) -> bytes:
    """A header block."""
    encoded: bytes = Encoder().encode(fields)
    return encoded


def begun(stream: int = 1, flags: int = frames.END_HEADERS) -> bytes:
    """The headers of a call."""
    return frames.frame(frames.HEADERS, flags, stream, block())


BROKEN: dict[str, tuple[int, tuple[bytes, ...]]] = {
    "data of no call": (frames.PROTOCOL_ERROR, (frames.frame(frames.DATA, 0, 1, b"a"),)),
    "data behind the end": (
        frames.FLOW_CONTROL_ERROR,
        (begun(flags=0x4), frames.frame(frames.DATA, 1, 1, b"\0\0\0\0\5wait ") + frames.frame(0, 0, 1, b"a")),
    ),
    "more than the window": (
        frames.FLOW_CONTROL_ERROR,
        (begun(), frames.frame_head(2 << 20, frames.DATA, 0, 1), bytes(9)),
    ),
    "padding of more than all": (frames.PROTOCOL_ERROR, (begun(), frames.frame(frames.DATA, 8, 1, b"\5ab"))),
    "no padding": (frames.FRAME_SIZE_ERROR, (begun(), frames.frame(frames.DATA, 8, 1, b""))),
    "even stream": (frames.PROTOCOL_ERROR, (begun(2),)),
    "no stream": (frames.PROTOCOL_ERROR, (begun(0),)),
    "headers in the midst": (frames.PROTOCOL_ERROR, (begun(), begun())),
    "block cut by a ping": (
        frames.PROTOCOL_ERROR,
        (begun(flags=0), frames.frame(frames.PING, 0, 0, bytes(8))),
    ),
    "block cut by data": (frames.PROTOCOL_ERROR, (begun(flags=0), frames.frame(frames.DATA, 0, 1, b""))),
    "block of no end": (
        frames.ENHANCE_YOUR_CALM,
        (begun(flags=0), frames.frame(frames.CONTINUATION, 0, 1, b"") * 99),
    ),
    "continuation of nothing": (frames.PROTOCOL_ERROR, (frames.frame(frames.CONTINUATION, 4, 1, b""),)),
    "no block": (frames.COMPRESSION_ERROR, (frames.frame(frames.HEADERS, 4, 1, b"\xff\xff\xff"),)),
    "list of too much": (
        frames.COMPRESSION_ERROR,
        (frames.frame(frames.HEADERS, 4, 1, Encoder().encode([("a", "x" * 4000)]) + b"\xbe" * 1000),),
    ),
    "large frame": (frames.FRAME_SIZE_ERROR, (frames.frame_head(1 << 20, frames.PING, 0, 0),)),
    "odd settings": (frames.FRAME_SIZE_ERROR, (frames.frame(frames.SETTINGS, 0, 0, b"a"),)),
    "push": (frames.PROTOCOL_ERROR, (frames.frame(frames.PUSH_PROMISE, 4, 1, b"\0\0\0\2"),)),
    "window of too much": (frames.FLOW_CONTROL_ERROR, (frames.window_update(0, frames.MOST_WINDOW),)),
    "reset of nothing": (frames.PROTOCOL_ERROR, (frames.reset(1, 8),)),
    "pings": (frames.ENHANCE_YOUR_CALM, (frames.frame(frames.PING, frames.ACK, 0, bytes(8)) * 11_000,)),
    "settings": (frames.ENHANCE_YOUR_CALM, (frames.frame(frames.SETTINGS, frames.ACK, 0, b"") * 11_000,)),
    "empty data": (frames.ENHANCE_YOUR_CALM, (begun(), frames.frame(frames.DATA, 0, 1, b"") * 11_000)),
    "rapid resets": (
        frames.ENHANCE_YOUR_CALM,
        tuple(begun(stream) + frames.reset(stream, 8) for stream in range(1, 23_000, 2)),
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_what_breaks_the_rules_ends_the_connection(served: Served, case: str) -> None:
    """With the code for it; others have theirs as before."""
    code, sent = BROKEN[case]
    client = Raw(served)
    with suppress(ConnectionError):  # it may be closed before all is sent
        client.begin(*sent)
    assert client.goaway() == code
    with grpc.insecure_channel(f"unix:{served.path}") as channel:
        assert call(channel, b"after") == b"after"


def test_what_is_not_http2_is_hung_up_on(served: Served) -> None:
    """A browser, or a port scanner."""
    client = Raw(served)
    client.socket.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    assert client.goaway() == frames.PROTOCOL_ERROR


def h2_call(
    client: socket.socket, peer: H2Connection, stream: int, fields: Any, body: bytes, pad: int
) -> Any:
    """A call over h2, which grants little as it reads: the trailers or headers of the answer, and its data."""
    peer.send_headers(stream, fields)
    answer, ended = b"", None
    while ended is None:
        while body and (count := min(len(body), peer.local_flow_control_window(stream) - pad - 1, 900)) > 0:
            peer.send_data(stream, body[:count], end_stream=count == len(body), pad_length=pad)
            body = body[count:]
        client.sendall(peer.data_to_send())
        for event in peer.receive_data(client.recv(50)):
            if isinstance(event, DataReceived):
                answer += event.data
                peer.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            elif isinstance(event, TrailersReceived):
                ended = {name.decode(): value.decode() for name, value in event.headers}
            elif isinstance(event, StreamReset):
                ended = {"reset": str(event.error_code)}
            else:
                assert not isinstance(event, StreamEnded) or ended is not None
    return ended, answer


@pytest.mark.parametrize("window", [100, 70_000])
def test_an_independent_client_agrees(served: Served, window: int) -> None:
    """h2 refuses whatever breaks HTTP/2's rules: small windows, padding, pings, settings that change."""
    client = Raw(served).socket
    peer = H2Connection(H2Configuration(client_side=True))
    peer.initiate_connection()
    peer.update_settings({4: window})
    peer.ping(b"12345678")
    body = bytes(range(250)) * 100
    message = struct.pack(">BL", 0, len(body)) + body
    for number in range(3):
        ended, answer = h2_call(client, peer, 2 * number + 1, FIELDS, message, 40 * number)
        assert ended == {"grpc-status": "0"}
        assert answer == message


def answered(served: Served, *sent: bytes) -> dict[str, str]:
    """The header fields of all blocks that come until the call's end."""
    client = Raw(served)
    client.begin(*sent)
    peer = H2Connection(H2Configuration(client_side=True))
    peer.initiate_connection()
    peer.send_headers(1, FIELDS, end_stream=True)
    fields: dict[str, str] = {}
    while True:
        for event in peer.receive_data(client.socket.recv(1 << 16)):
            if headers := getattr(event, "headers", None):
                fields |= {name.decode(): value.decode() for name, value in headers}
            if isinstance(event, StreamEnded):
                return fields


def test_frames_of_no_concern_are_passed_over(served: Served) -> None:
    """Unknown ones, priorities, and headers with priority and padding, in parts."""
    padded = b"\3\0\0\0\0\x10" + block()[:10]
    sent = (
        frames.frame(99, 0, 0, b"what"),
        frames.frame(frames.PRIORITY, 0, 1, bytes(5)),
        frames.frame(frames.HEADERS, frames.PADDED | frames.WITH_PRIORITY, 1, padded + bytes(3)),
        frames.frame(frames.CONTINUATION, 0, 1, block()[10:20]),
        frames.frame(frames.CONTINUATION, frames.END_HEADERS, 1, block()[20:]),
        frames.frame(frames.DATA, 0, 1, b"\0\0"),
        frames.frame(frames.DATA, frames.PADDED, 1, b"\2\0\0\1a!!"),
        frames.frame(frames.DATA, frames.END_STREAM, 1, b""),
    )
    assert answered(served, *sent)["grpc-status"] == "0"


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ((":method", "GET"), (":status", "405")),
        (("content-type", "text/plain"), (":status", "415")),
        (("grpc-encoding", "snappy"), ("grpc-status", "12")),
        (("grpc-encoding", "gzip"), ("grpc-status", "0")),
        (("grpc-encoding", "identity"), ("grpc-status", "13")),
    ],
)
def test_what_is_no_call_has_an_answer(
    served: Served, changed: tuple[str, str], expected: tuple[str, str]
) -> None:
    """In HTTP's own words, or with gRPC's code; which encodings are known is said with it."""
    packed = gzip.compress(b"abc")
    data = struct.pack(">BL", 1, len(packed)) + packed
    head = frames.frame(frames.HEADERS, 4, 1, block(list({**dict(FIELDS), changed[0]: changed[1]}.items())))
    fields = answered(served, head, frames.frame(frames.DATA, frames.END_STREAM, 1, data))
    assert fields[expected[0]] == expected[1]
    if expected[0] == "grpc-status":
        assert fields["grpc-accept-encoding"] == "identity,deflate,gzip"


def test_a_client_that_does_not_read_holds_up_nobody(served: Served, channel: grpc.Channel) -> None:
    """Its answers wait, in bounded memory, and so do its next calls."""
    client = Raw(served)
    client.begin(
        frames.window_update(0, 1 << 30), frames.frame(frames.SETTINGS, 0, 0, b"\0\4\x7f\xff\xff\xff")
    )
    body = struct.pack(">BL", 0, 500_000) + bytes(500_000)
    client.socket.settimeout(1)
    calls = [begun(stream) + frames.frame(frames.DATA, 1, stream, body) for stream in range(1, 200, 2)]
    with pytest.raises(TimeoutError):
        client.socket.sendall(b"".join(calls))
    began = time.monotonic()
    assert call(channel, b"other") == b"other"
    assert time.monotonic() - began < 5


def test_too_many_calls_at_a_time_are_refused(served: Served) -> None:
    """Those beyond the limit may be made again, as HTTP/2 says."""
    client = Raw(served)
    client.begin(*(begun(stream) for stream in range(1, 2 * 1024 + 3, 2)))
    received = b""
    refused = frames.reset(2 * 1024 + 1, frames.REFUSED_STREAM)
    while refused not in received:
        received += client.socket.recv(1 << 16)


NGINX = """
daemon off; pid {folder}/pid; error_log stderr; worker_processes 1; events {{ }}
http {{
  access_log off; client_body_temp_path {folder}/body; client_max_body_size 0;
  proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/f; uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
  upstream model {{ server 127.0.0.1:{port}; keepalive 8; }}
  server {{ listen unix:{folder}/n http2; location / {{ grpc_pass grpc://model; }} }}
}}
"""


@pytest.fixture
def through_nginx(served: Served, tmp_path: Path) -> Iterator[grpc.Channel]:
    """grpcio's client of an nginx that passes calls on over kept connections."""
    config = tmp_path / "nginx.conf"
    config.write_text(NGINX.format(folder=tmp_path, port=served.port))
    process = subprocess.Popen(
        [nginx_config.find() or "nginx", "-p", str(tmp_path), "-c", str(config), "-e", "stderr"]
    )
    try:
        with grpc.insecure_channel(f"unix:{tmp_path / 'n'}", LARGE) as opened:
            grpc.channel_ready_future(opened).result(SECONDS)
            yield opened
    finally:
        process.terminate()
        process.wait(SECONDS)


@pytest.mark.skipif(not has_nginx(), reason="nginx is not installed")
def test_nginx_in_front_changes_nothing(through_nginx: grpc.Channel) -> None:
    """Messages of every size, many calls at a time, and what calls fail with."""
    for size in (0, 1, 16_379, 106_000, 1_048_576, 5_000_000):
        assert call(through_nginx, bytes(size)) == bytes(size)
    sent = [bytes(number * 997 % 40_000) for number in range(200)]
    with futures.ThreadPoolExecutor(8) as threads:
        assert list(threads.map(partial(call, through_nginx), sent, [METHOD, QUICK] * 100)) == sent
    assert failure(through_nginx, b"refuse ") == ("INVALID_ARGUMENT", CAFE)
    assert failure(through_nginx, b"", "/Other") == ("UNIMPLEMENTED", "Method not found!")
    assert call(through_nginx, b"after") == b"after"
