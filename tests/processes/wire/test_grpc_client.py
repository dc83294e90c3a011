"""Our gRPC client against servers that are not ours: grpcio's, one on `h2`, and ones that misbehave."""

import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent import futures
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import DataReceived, StreamEnded
from h2.settings import SettingCodes
from hpack import Encoder

from tfs_proxy.values.errors import NotReached, UpstreamError, UpstreamTimeout, UpstreamUnavailable
from tfs_proxy.wire import grpc_frames as frames
from tfs_proxy.wire.connect import connect_tcp, connect_unix_patiently
from tfs_proxy.wire.grpc_client import GrpcPool
from tfs_proxy.wire.grpc_codes import GrpcCode

Serve = Callable[[socket.socket], None]
METHOD = "/test.Service/Method"
SECONDS = 20.0


def pool_at(path: Path) -> GrpcPool:
    """Our client of the unix socket at ``path``."""
    return GrpcPool(partial(connect_unix_patiently, path), "localhost")


@pytest.fixture(scope="module")
def grpc_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, int]]:
    """A server of grpcio, at a unix socket and a port: echoes, and does what the first word of a request says."""
    path, meeting = tmp_path_factory.mktemp("grpc") / "s", threading.Barrier(2)

    def answer(message: bytes, context: grpc.ServicerContext) -> bytes:
        word = message[:10].partition(b" ")[0]
        if word == b"refuse":
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, "caf\u00e9 100% " + "x" * 6_000)
        if word == b"meet":
            meeting.wait(SECONDS)
        if word == b"sleep":
            time.sleep(0.5)
        if word == b"metadata":
            return repr(sorted((name, str(value)) for name, value in context.invocation_metadata())).encode()
        return message

    handlers = {"Method": grpc.unary_unary_rpc_method_handler(answer)}
    options = (("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1))
    server = grpc.server(futures.ThreadPoolExecutor(8), options=options)
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("test.Service", handlers)])
    server.add_insecure_port(f"unix:{path}")
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield path, port
    server.stop(None).wait()


@pytest.mark.parametrize("size", [0, 1, 16_379, 65_531, 106_000, 5_000_000, 150_000_000])
def test_messages_of_every_size(grpc_server: tuple[Path, int], size: int) -> None:
    """Through windows and frames of any size, both ways, several times over one connection."""
    pool = pool_at(grpc_server[0])
    message = bytes(range(256)) * (size // 256 + 1)
    message = message[:size]
    for _ in range(1 if size > 10_000_000 else 5):
        answer = pool.call(METHOD, [message[: size // 3], memoryview(message)[size // 3 :]], SECONDS)
        assert (answer.code, bytes(answer.message) == message) == (GrpcCode.OK, True)
    pool.close()


def test_over_tcp(grpc_server: tuple[Path, int]) -> None:
    """A port is as good as a unix socket."""
    pool = GrpcPool(partial(connect_tcp, "127.0.0.1", grpc_server[1]), "127.0.0.1")
    assert [bytes(pool.call(METHOD, [b"a"], SECONDS).message) for _ in range(3)] == [b"a"] * 3
    pool.close()


def test_the_servers_own_words(grpc_server: tuple[Path, int]) -> None:
    """Code and text of a refusal, of any letters and length; and a method that is not there."""
    pool = pool_at(grpc_server[0])
    refused = pool.call(METHOD, [b"refuse "], SECONDS)
    assert (refused.code, refused.text) == (GrpcCode.INVALID_ARGUMENT, "caf\u00e9 100% " + "x" * 6_000)
    assert pool.call("/test.Service/Other", [b""], SECONDS).code is GrpcCode.UNIMPLEMENTED
    assert pool.call(METHOD, [b"after"], SECONDS).code is GrpcCode.OK
    pool.close()


def test_metadata_and_deadline_arrive(grpc_server: tuple[Path, int]) -> None:
    """Headers of a trace reach the server, however long; time that is over ends the call, not the client."""
    pool = pool_at(grpc_server[0])
    seen = bytes(
        pool.call(METHOD, [b"metadata "], SECONDS, {"Traceparent": "00-1", "b": "y" * 5_000}).message
    )
    assert b"('traceparent', '00-1')" in seen
    assert b"y" * 5_000 in seen
    with pytest.raises(UpstreamTimeout, match=r"0\.1 seconds"):
        pool.call(METHOD, [b"sleep "], 0.1)
    assert bytes(pool.call(METHOD, [b"after"], SECONDS).message) == b"after"
    pool.close()


def test_threads_have_connections_of_their_own(grpc_server: tuple[Path, int]) -> None:
    """Eight threads get their own answers."""
    pool = pool_at(grpc_server[0])
    with futures.ThreadPoolExecutor(8) as threads:
        asked = [str(number).encode() * 1000 for number in range(400)]
        answers = threads.map(lambda message: bytes(pool.call(METHOD, [message], SECONDS).message), asked)
        assert list(answers) == asked
    pool.close()


GREENLETS = """
from gevent import monkey; monkey.patch_all()
import sys
from functools import partial
from pathlib import Path
from gevent.pool import Pool
from tfs_proxy.wire.connect import connect_unix_patiently
from tfs_proxy.wire.grpc_client import GrpcPool
calls = GrpcPool(partial(connect_unix_patiently, Path(sys.argv[1])), "localhost")
sent = [b"meet " + bytes(300_000), b"meet "]
print(Pool(2).map(lambda message: bytes(calls.call("/test.Service/Method", [message], 20).message), sent) == sent)
"""


def test_greenlets_let_each_other_go_on(grpc_server: tuple[Path, int]) -> None:
    """Each of two calls is answered once the server has both: none may hold up the thread that they share."""
    command = [sys.executable, "-c", GREENLETS, str(grpc_server[0])]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=SECONDS)

    assert done.stdout.strip() == "True"


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Callable[..., GrpcPool]]:
    """Starts a server that treats its connections, one after the other, by the functions that are given."""
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listening.bind(str(tmp_path / "s"))
    listening.listen()
    pool = pool_at(tmp_path / "s")

    def start(*connections: Serve) -> GrpcPool:
        def accept() -> None:
            with suppress(OSError):  # the test may be over
                for serve in connections:
                    connection, _ = listening.accept()
                    with connection, suppress(OSError):
                        connection.settimeout(SECONDS)
                        serve(connection)
                listening.close()

        threading.Thread(target=accept, daemon=True).start()
        return pool

    yield start
    pool.close()
    listening.close()


HEADERS = [(":status", "200"), ("content-type", "application/grpc")]
OK = [("grpc-status", "0")]
MESSAGE = b"\0\0\0\0\2ok"


def h2_peer(window: int, frame_bytes: int, *, calls: int = 1) -> Serve:
    """A server on h2 that grants small windows as it reads, and pads, and answers with what it got."""

    def serve(connection: socket.socket) -> None:
        peer = H2Connection(H2Configuration(client_side=False))
        peer.initiate_connection()
        peer.update_settings(
            {
                SettingCodes.INITIAL_WINDOW_SIZE: window,
                SettingCodes.MAX_FRAME_SIZE: frame_bytes,
                SettingCodes.HEADER_TABLE_SIZE: 0,
            }
        )
        peer.ping(b"12345678")
        body, left = b"", calls
        while left:
            connection.sendall(peer.data_to_send())
            # In small parts: h2 takes over an acknowledged limit of frames with the next call alone.
            for event in peer.receive_data(connection.recv(50)):
                if isinstance(event, DataReceived):
                    body += event.data
                    peer.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
                elif isinstance(event, StreamEnded):
                    peer.send_headers(event.stream_id, HEADERS)
                    for start in range(0, len(body), 1000):
                        peer.send_data(event.stream_id, body[start : start + 1000], pad_length=start % 256)
                    peer.send_headers(event.stream_id, OK, end_stream=True)
                    body, left = b"", left - 1
        connection.sendall(peer.data_to_send())
        connection.recv(1 << 16)

    return serve


@pytest.mark.parametrize(("window", "frame_bytes"), [(100, 16_384), (1_000_000, 16_384), (70_000, 1_000_000)])
def test_an_independent_server_agrees(served: Callable[..., GrpcPool], window: int, frame_bytes: int) -> None:
    """h2 refuses whatever breaks HTTP/2's rules: windows, sizes, tables, and answers to settings and pings."""
    pool, message = served(h2_peer(window, frame_bytes, calls=3)), bytes(range(200)) * 100
    for _ in range(3):
        assert bytes(pool.call(METHOD, [message], SECONDS).message) == message


def request_read(connection: socket.socket) -> None:
    """Read until the end of the request's message."""
    received = b""
    while not received.endswith(b"asked"):
        part = connection.recv(1 << 16)
        if not part:
            return
        received += part


def block(fields: list[tuple[str, str]]) -> bytes:
    """A header block."""
    encoded: bytes = Encoder().encode(fields)
    return encoded


def replying(*sent: bytes) -> Serve:
    """Reads a request, sends these bytes, and closes once the client does."""

    def serve(connection: socket.socket) -> None:
        request_read(connection)
        connection.sendall(b"".join(sent))
        connection.shutdown(socket.SHUT_WR)
        connection.recv(1 << 16)

    return serve


def head(fields: list[tuple[str, str]], flags: int = frames.END_HEADERS) -> bytes:
    """A HEADERS frame of the first call."""
    return frames.frame(frames.HEADERS, flags, 1, block(fields))


TRAILERS = head(OK, frames.END_HEADERS | frames.END_STREAM)
ANSWER = frames.frame(frames.SETTINGS, 0, 0, b"") + head(HEADERS) + frames.frame(frames.DATA, 0, 1, MESSAGE)
GOAWAY_BEFORE = frames.frame(frames.GOAWAY, 0, 0, struct.pack(">LL", 0, 0))
GOAWAY_AFTER = frames.frame(frames.GOAWAY, 0, 0, struct.pack(">LL", 1, 0))
REFUSED = frames.frame(frames.RST_STREAM, 0, 1, struct.pack(">L", frames.REFUSED_STREAM))
CALLED_OFF = frames.frame(frames.RST_STREAM, 0, 1, struct.pack(">L", 2))

BROKEN: dict[str, tuple[bytes, ...]] = {
    "not HTTP/2": (b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n",),
    "compressed": (head(HEADERS), frames.frame(frames.DATA, 0, 1, b"\1\0\0\0\2ok"), TRAILERS),
    "cut message": (head(HEADERS), frames.frame(frames.DATA, 0, 1, MESSAGE[:-1]), TRAILERS),
    "no message": (head(HEADERS), TRAILERS),
    "no status": (head(HEADERS), frames.frame(frames.DATA, frames.END_STREAM, 1, MESSAGE)),
    "another status": (head([(":status", "502")], frames.END_HEADERS | frames.END_STREAM),),
    "data first": (frames.frame(frames.DATA, 0, 1, MESSAGE),),
    "another stream": (head(HEADERS), frames.frame(frames.DATA, 0, 3, MESSAGE)),
    "push": (frames.frame(frames.PUSH_PROMISE, 4, 1, b"\0\0\0\2"),),
    "block of no end": (
        frames.frame(frames.HEADERS, 0, 1, b""),
        frames.frame(frames.CONTINUATION, 0, 1, b"") * 99,
    ),
    "large block": (frames.frame_head(1 << 19, frames.HEADERS, 4, 1), bytes(1 << 19)),
    "block cut by a ping": (
        frames.frame(frames.HEADERS, 0, 1, b""),
        frames.frame(frames.PING, 0, 0, bytes(8)),
    ),
    "large control frame": (frames.frame(frames.PING, 0, 0, bytes(1 << 15)),),
    "called off": (head(HEADERS), CALLED_OFF),
    "data longer than its frame": (head(HEADERS), frames.frame(frames.DATA, frames.PADDED, 1, b"\5ab")),
}


@pytest.mark.parametrize("case", BROKEN)
def test_what_is_not_grpc_is_an_error_at_once(served: Callable[..., GrpcPool], case: str) -> None:
    """It is told in a sentence, and the next call has a new connection."""
    pool = served(replying(*BROKEN[case]), replying(ANSWER, TRAILERS))
    with pytest.raises(UpstreamError, match="can't be read") as caught:
        pool.call(METHOD, [b"asked"], SECONDS)
    assert type(caught.value) is UpstreamError
    assert bytes(pool.call(METHOD, [b"asked"], SECONDS).message) == b"ok"


@pytest.mark.parametrize("sent", [b"", ANSWER, ANSWER[:-1], frames.frame(frames.SETTINGS, 0, 0, b"")[:4]])
def test_a_connection_that_breaks_is_not_tried_again(served: Callable[..., GrpcPool], sent: bytes) -> None:
    """The server may have begun: whoever asks decides."""
    pool = served(replying(sent), replying(ANSWER, TRAILERS))
    with pytest.raises(UpstreamUnavailable):
        pool.call(METHOD, [b"asked"], SECONDS)


@pytest.mark.parametrize("refusal", [GOAWAY_BEFORE, REFUSED])
def test_a_call_that_has_not_begun_is_made_again(served: Callable[..., GrpcPool], refusal: bytes) -> None:
    """The server says that it has not looked at it: by a new connection it goes out once more, but no third time."""

    def then_refuses(connection: socket.socket) -> None:
        request_read(connection)
        connection.sendall(ANSWER + TRAILERS)
        assert connection.recv(1 << 16)
        connection.sendall(refusal.replace(b"\0\0\0\1\0\0\0\7", b"\0\0\0\3\0\0\0\7"))
        connection.recv(1 << 16)

    pool = served(then_refuses, replying(ANSWER, TRAILERS), replying(GOAWAY_BEFORE))
    assert [bytes(pool.call(METHOD, [b"asked"], SECONDS).message) for _ in range(2)] == [b"ok"] * 2


def test_a_server_that_leaves_answers_first(served: Callable[..., GrpcPool]) -> None:
    """The call that it has begun is answered; the next has a new connection, and one refused there was not sent."""
    pool = served(replying(GOAWAY_AFTER, ANSWER, TRAILERS), replying(REFUSED))
    assert bytes(pool.call(METHOD, [b"asked"], SECONDS).message) == b"ok"
    with pytest.raises(NotReached):
        pool.call(METHOD, [b"asked"], SECONDS)


def test_a_kept_connection_that_was_closed_is_replaced(served: Callable[..., GrpcPool]) -> None:
    """Nothing was taken of the call: it goes out on a new connection."""
    closed = threading.Event()

    def serve(connection: socket.socket) -> None:
        request_read(connection)
        connection.sendall(ANSWER + TRAILERS)
        connection.close()
        closed.set()

    pool = served(serve, replying(ANSWER, TRAILERS))
    assert bytes(pool.call(METHOD, [b"asked"], SECONDS).message) == b"ok"
    assert closed.wait(SECONDS)
    assert bytes(pool.call(METHOD, [b"asked"], SECONDS).message) == b"ok"


def test_a_refusal_before_the_request_has_been_read(served: Callable[..., GrpcPool]) -> None:
    """The server's word counts, though its window never opens for the rest."""
    refusal: Any = [*HEADERS, ("grpc-status", "8"), ("grpc-message", "too large")]

    def serve(connection: socket.socket) -> None:
        connection.recv(1000)
        connection.sendall(head(refusal, frames.END_HEADERS | frames.END_STREAM))

    pool = served(serve)
    answer = pool.call(METHOD, [b"asked", bytes(300_000)], SECONDS)
    assert (answer.code, answer.text) == (GrpcCode.RESOURCE_EXHAUSTED, "too large")


def test_nobody_there(tmp_path: Path) -> None:
    """No socket, no call."""
    with pytest.raises(NotReached):
        pool_at(tmp_path / "none").call(METHOD, [b""], SECONDS)
