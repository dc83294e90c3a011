"""The REST upstream against a tiny HTTP server on a real socket, well behaved and not."""

import socket
import socketserver
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import numpy as np
import pytest

from tfs_proxy.serving.upstream.rest import RestUpstream, model_path
from tfs_proxy.values.batch import Batch
from tfs_proxy.values.deployment import Instance
from tfs_proxy.values.errors import UpstreamTimeout, UpstreamUnavailable
from tfs_proxy.values.signature import Target

BATCH = Batch({"x": np.array([1, 2], np.float32)}, 2)
TARGET = Target("half_plus_two")


@dataclass
class Request:
    """What the server read: its body, and which connection it came over."""

    body: bytes
    connection: int


def _reply(body: bytes = b'{"predictions": []}') -> bytes:
    head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


Behaviour = Callable[[socket.socket, Request], None]


class Server(socketserver.ThreadingTCPServer):
    """Lets ``behaviour`` answer each request; closing the connection there ends it."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Connection)
        self.port: int = self.server_address[1]
        self.behaviour: Behaviour = lambda connection, _: connection.sendall(_reply())
        self.requests: list[Request] = []
        self.open: list[socket.socket] = []
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()

    def close_connections(self) -> None:
        """Close what is open, as a server does with idle connections."""
        for connection in self.open:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


class _Connection(socketserver.StreamRequestHandler):
    server: Server

    def handle(self) -> None:
        self.server.open.append(self.connection)
        number = len(self.server.open)
        with suppress(OSError):
            while self.rfile.readline():
                length = 0
                while (header := self.rfile.readline()) not in {b"\r\n", b""}:
                    name, _, value = header.partition(b":")
                    length = int(value) if name.lower() == b"content-length" else length
                request = Request(self.rfile.read(length), number)
                self.server.requests.append(request)
                self.server.behaviour(self.connection, request)


@pytest.fixture
def server() -> Iterator[Server]:
    """A server that answers 200."""
    with Server() as running:
        yield running
        running.shutdown()
        running.close_connections()


@contextmanager
def _upstream(*ports: int, timeout_seconds: float = 60) -> Iterator[RestUpstream]:
    instances = [Instance(index, port, 0, "") for index, port in enumerate(ports)]
    upstream = RestUpstream(instances, timeout_seconds)
    try:
        yield upstream
    finally:
        upstream.close()


def test_idle_connection_on_which_something_came_is_replaced(server: Server) -> None:
    """Bytes that nobody asked for would be taken for the next answer."""
    with _upstream(server.port) as upstream:
        upstream.predict(TARGET, BATCH)
        server.open[0].sendall(_reply(b"stale"))
        assert upstream.predict(TARGET, BATCH).body != b"stale"
    assert [request.connection for request in server.requests] == [1, 2]


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
        server.behaviour = lambda connection, _: connection.sendall(_reply())
        assert upstream.predict(TARGET, BATCH).ok
    assert len(server.open) == 2


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
