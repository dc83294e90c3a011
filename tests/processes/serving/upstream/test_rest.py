"""The REST upstream against a tiny HTTP server on a real socket, well behaved and not."""

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

import numpy as np
import pytest

from support.sockets import wait_until_hung_up
from tfs_proxy.serving.upstream.interface import Upstream
from tfs_proxy.serving.upstream.rest import RestUpstream, model_path
from tfs_proxy.values.batch import Batch
from tfs_proxy.values.deployment import Instance
from tfs_proxy.values.errors import BadInput, UpstreamRefused, UpstreamTimeout, UpstreamUnavailable
from tfs_proxy.values.signature import PREDICT_METHOD, Signature, Target, TensorSpec

BATCH = Batch({"x": np.array([1, 2], np.float32)}, 2)
TARGET = Target("half_plus_two")
METADATA = {
    "metadata": {
        "signature_def": {
            "signature_def": {
                name: {
                    "inputs": {"x": {"dtype": "DT_FLOAT", "tensor_shape": {"dim": [{"size": "-1"}]}}},
                    "outputs": {},
                    "method_name": PREDICT_METHOD,
                }
                for name in ("serving_default", "other")
            }
        }
    }
}


@dataclass
class Request:
    """What the server read: request line, body, and which connection it came over."""

    line: str
    body: bytes
    connection: int


def _reply(body: bytes = b'{"predictions": []}', status: str = "200 OK", more: str = "") -> bytes:
    head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n{more}\r\n"
    return head.encode() + body


Behaviour = Callable[[socket.socket, Request], None]


def _answers(reply: bytes) -> Behaviour:
    return lambda connection, _: connection.sendall(reply)


@dataclass
class Server:
    """Accepts connections and lets ``behaviour`` answer each request; closing one there ends it."""

    behaviour: Behaviour = field(default_factory=lambda: _answers(_reply()))
    requests: list[Request] = field(default_factory=list)
    connections: int = 0

    def __post_init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._open: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                self.connections += 1
                self._open.append(connection)
                thread = threading.Thread(
                    target=self._serve, args=(connection, self.connections), daemon=True
                )
                self._threads.append(thread)
                thread.start()

    def _serve(self, connection: socket.socket, number: int) -> None:
        with suppress(OSError), connection, connection.makefile("rb") as stream:
            while line := stream.readline():
                length = 0
                while (header := stream.readline()) not in {b"\r\n", b""}:
                    name, _, value = header.partition(b":")
                    length = int(value) if name.lower() == b"content-length" else length
                request = Request(line.decode().strip(), stream.read(length), number)
                self.requests.append(request)
                self.behaviour(connection, request)

    def close_connections(self) -> None:
        """Close what is open, as a server does with idle connections."""
        for connection in self._open:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def stop(self) -> None:
        """End everything."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.close_connections()
        for thread in self._threads:
            thread.join(60)


@pytest.fixture
def server() -> Iterator[Server]:
    """A server that answers 200."""
    running = Server()
    yield running
    running.stop()


@contextmanager
def _upstream(*ports: int, timeout_seconds: float = 60) -> Iterator[RestUpstream]:
    instances = [Instance(index, port, 0, "") for index, port in enumerate(ports)]
    upstream = RestUpstream(instances, timeout_seconds)
    try:
        yield upstream
    finally:
        upstream.close()


@pytest.fixture
def closed_port() -> Iterator[int]:
    """A port that refuses connections: it is bound, so that nobody else can listen on it, and does not listen."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        port: int = bound.getsockname()[1]
        yield port


def test_predict(server: Server) -> None:
    """A batch is posted in row form, and the answer comes back as it is."""
    server.behaviour = _answers(_reply(b'{"predictions": [2.5, 3.0]}'))
    with _upstream(server.port) as upstream:
        interface: Upstream = upstream
        answer = interface.predict(TARGET, BATCH)
    assert answer.ok
    assert answer.body == b'{"predictions": [2.5, 3.0]}'
    assert answer.headers["Content-Type"] == "application/json"
    assert answer.url == f"http://127.0.0.1:{server.port}/v1/models/half_plus_two:predict"
    assert server.requests[0].line == "POST /v1/models/half_plus_two:predict HTTP/1.1"
    assert json.loads(server.requests[0].body) == {"instances": [1.0, 2.0]}


def test_forward_sends_the_body_untouched(server: Server) -> None:
    """JSON of the client goes out byte for byte; a signature is added only where one is asked for."""
    with _upstream(server.port) as upstream:
        upstream.predict(TARGET, b' {"instances" : [NaN]}')
        upstream.predict(Target("m", signature="norm"), b'{"instances": [1]}')
    assert server.requests[0].body == b' {"instances" : [NaN]}'
    assert server.requests[1].body == b'{"signature_name":"norm","instances": [1]}'


def test_connections_are_kept(server: Server) -> None:
    """One after another, requests share one connection."""
    with _upstream(server.port) as upstream:
        for _ in range(5):
            upstream.predict(TARGET, BATCH)
    assert server.connections == 1


def test_threads_share_the_pool(server: Server) -> None:
    """Sixteen threads get their own answers, over at most as many connections."""
    server.behaviour = lambda connection, request: connection.sendall(_reply(request.body))
    with _upstream(server.port) as upstream, ThreadPoolExecutor(16) as threads:
        bodies = [b'{"instances": [%d]}' % number for number in range(400)]
        answers = list(threads.map(lambda body: upstream.predict(TARGET, body).body, bodies))
    assert answers == bodies
    assert server.connections <= 16


def test_idle_connection_closed_by_the_server(server: Server) -> None:
    """An idle connection that the server has closed is found out and replaced."""
    with _upstream(server.port) as upstream:
        upstream.predict(TARGET, BATCH)
        server.close_connections()
        wait_until_hung_up(server.port)
        assert upstream.predict(TARGET, BATCH).ok
    assert len(server.requests) == 2


def test_idle_connection_closed_while_sending(server: Server) -> None:
    """A kept connection that ends before a byte of an answer leads to one more try, on a new one."""

    def closes_second(connection: socket.socket, request: Request) -> None:
        if len(server.requests) == 2:
            connection.shutdown(socket.SHUT_RDWR)
        else:
            connection.sendall(_reply())

    server.behaviour = closes_second
    with _upstream(server.port) as upstream:
        upstream.predict(TARGET, BATCH)
        assert upstream.predict(TARGET, BATCH).ok
    assert [request.connection for request in server.requests] == [1, 1, 2]


def test_no_second_try_on_a_new_connection(server: Server) -> None:
    """A new connection that ends without an answer is an error: the request may have done harm."""
    server.behaviour = lambda connection, _: connection.shutdown(socket.SHUT_RDWR)
    with _upstream(server.port) as upstream, pytest.raises(UpstreamUnavailable):
        upstream.predict(TARGET, BATCH)
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    "part",
    [
        b'HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"predictions"',
        b"HTTP/1.1 200 OK\r\nContent-Length: 5000000\r\n\r\n" + b"1" * 2_000_000,
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab",
        b"nonsense\r\n\r\n",
    ],
    ids=["short", "long", "chunked", "nonsense"],
)
def test_answer_that_breaks_off(server: Server, part: bytes) -> None:
    """Half an answer is never taken for a whole one, and not asked for again."""

    def breaks_off(connection: socket.socket, request: Request) -> None:
        connection.sendall(_reply() if len(server.requests) == 1 else part)
        if len(server.requests) > 1:
            connection.shutdown(socket.SHUT_RDWR)

    server.behaviour = breaks_off
    with _upstream(server.port) as upstream:
        upstream.predict(TARGET, BATCH)
        with pytest.raises(UpstreamUnavailable):
            upstream.predict(TARGET, BATCH)
    assert len(server.requests) == 2


def test_large_and_chunked_answers(server: Server) -> None:
    """Answers of several MB, with and without a length, arrive whole."""
    body = b"[" + b"1," * 1_500_000 + b"1]"
    chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n" % (
        len(body),
        body,
    )
    with _upstream(server.port) as upstream:
        for reply in (_reply(body), chunked):
            server.behaviour = _answers(reply)
            assert upstream.predict(TARGET, BATCH).body == body
    assert server.connections == 1


def test_slow_answer_times_out(server: Server) -> None:
    """No answer in time is a timeout that says how long was waited, and the connection is given up."""
    wait = threading.Event()

    def waits(_: socket.socket, __: Request) -> None:
        wait.wait(60)

    server.behaviour = waits
    with _upstream(server.port) as upstream:
        with pytest.raises(UpstreamTimeout, match=r"0\.2 seconds"):
            upstream.predict(TARGET, BATCH, timeout_seconds=0.2)
        wait.set()
        server.behaviour = _answers(_reply())
        assert upstream.predict(TARGET, BATCH).ok
    assert server.connections == 2


def test_answer_that_drips_times_out(server: Server) -> None:
    """The time is for the whole answer: a byte now and then does not renew it."""

    def drips(connection: socket.socket, request: Request) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 10000000\r\n\r\n")
        while True:  # until the client is gone
            connection.sendall(b"1")
            time.sleep(0.05)

    server.behaviour = drips
    with _upstream(server.port, timeout_seconds=0.3) as upstream, pytest.raises(UpstreamTimeout):
        upstream.predict(TARGET, BATCH)


def test_refused_instance_leaves_it_to_the_next(server: Server, closed_port: int) -> None:
    """An instance that refuses connections is passed over."""
    with _upstream(closed_port, server.port) as upstream:
        answers = [upstream.predict(TARGET, BATCH).ok for _ in range(4)]
    assert answers == [True] * 4


def test_no_instance_at_all(closed_port: int) -> None:
    """Where every instance refuses, or there is none, the model server is unavailable."""
    with (
        _upstream(closed_port, closed_port) as upstream,
        pytest.raises(UpstreamUnavailable, match="Try again"),
    ):
        upstream.predict(TARGET, BATCH)
    with _upstream() as upstream, pytest.raises(UpstreamUnavailable):
        upstream.predict(TARGET, BATCH)


def test_instances_take_turns(server: Server) -> None:
    """Instances are chosen in turn; a chosen one gets the request."""
    other = Server()
    try:
        with _upstream(server.port, other.port) as upstream:
            for _ in range(4):
                upstream.predict(TARGET, BATCH)
            for _ in range(3):
                upstream.predict(TARGET, BATCH, instance=Instance(1, other.port, 0, ""))
    finally:
        other.stop()
    assert (len(server.requests), len(other.requests)) == (2, 5)


def test_errors_are_answers(server: Server) -> None:
    """An error of the model server is given back with its status and body."""
    server.behaviour = _answers(_reply(b'{"error": "full"}', "503 Service Unavailable"))
    with _upstream(server.port) as upstream:
        answer = upstream.predict(TARGET, BATCH)
    assert (answer.status, answer.ok, answer.body) == (503, False, b'{"error": "full"}')


def test_signature_is_read_once_per_version(server: Server) -> None:
    """Metadata is asked for once per model version, and names what else there is."""
    server.behaviour = _answers(_reply(json.dumps(METADATA).encode()))
    with _upstream(server.port) as upstream:
        for _ in range(2):
            signature = upstream.signature(Target("m", version=2))
        assert upstream.signature(Target("m", version=2, signature="other")).name == "other"
        with pytest.raises(BadInput, match=r'no signature "nope".*other, serving_default'):
            upstream.signature(Target("m", version=2, signature="nope"))
    assert signature == Signature(
        "serving_default", PREDICT_METHOD, {"x": TensorSpec("x", "DT_FLOAT", (None,))}, {}
    )
    assert [request.line for request in server.requests] == ["GET /v1/models/m/versions/2/metadata HTTP/1.1"]


def test_signature_of_an_unknown_model(server: Server) -> None:
    """The model server's own 404 is raised, and asked for again the next time."""
    server.behaviour = _answers(_reply(b'{"error": "not found"}', "404 Not Found"))
    with _upstream(server.port) as upstream:
        for _ in range(2):
            with pytest.raises(UpstreamRefused) as refused:
                upstream.signature(Target("nope"))
    assert (refused.value.status, refused.value.body) == (404, b'{"error": "not found"}')
    assert len(server.requests) == 2


@pytest.mark.parametrize(
    ("target", "path"),
    [
        (Target("m"), "/v1/models/m"),
        (Target("m", version=3), "/v1/models/m/versions/3"),
        (Target("m", label="stable"), "/v1/models/m/labels/stable"),
        (Target("a b/c?d"), "/v1/models/a%20b%2Fc%3Fd"),
        (Target("é", label="x/y"), "/v1/models/%C3%A9/labels/x%2Fy"),
    ],
)
def test_paths(target: Target, path: str) -> None:
    """Names and labels are percent-encoded."""
    assert model_path(target) == path
