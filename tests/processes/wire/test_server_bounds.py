"""What the clients of the asyncio HTTP server may use together: connections and memory, on real sockets."""

import asyncio
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.client import HTTPResponse

import pytest

from support.waiting import wait_until
from tfs_proxy.wire.http_messages import HttpRequest, HttpResponse
from tfs_proxy.wire.http_server import BACKLOG, HttpServer
from tfs_proxy.wire.server.bounds import BodyMemory, OpenConnections
from tfs_proxy.wire.server.connection import RequestLimits

MOST = 8
MEGABYTE = 1 << 20
SECONDS = 60.0
GET = b"GET /ping HTTP/1.1\r\nHost: x\r\n\r\n"
SERVER = """
import asyncio, logging, resource, socket, sys
logging.basicConfig(stream=sys.stderr)
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
from tfs_proxy.wire.http_messages import HttpResponse
from tfs_proxy.wire.http_server import HttpServer

async def hello(_):
    return HttpResponse(200)

async def serve():
    listener = socket.create_server(("127.0.0.1", 0), backlog=2048)
    await HttpServer(hello).open(listener)
    print(listener.getsockname()[1], flush=True)
    await asyncio.sleep(600)

asyncio.run(serve())
"""


class Served:
    """A server on a thread of its own; requests for /wait are answered once ``go_on`` is set."""

    def __init__(self, limits: RequestLimits, most: int) -> None:
        self.go_on = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=BACKLOG)
        self._server = HttpServer(self._respond, limits)
        self._server.open_connections = OpenConnections(most)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._server.open(self._listener), self._loop).result(SECONDS)

    async def _respond(self, request: HttpRequest) -> HttpResponse:
        if request.path == "/wait":
            await asyncio.to_thread(self.go_on.wait)
        return HttpResponse(200, b"%d" % len(request.body))

    def connect(self) -> socket.socket:
        """A client's connection."""
        return socket.create_connection(self._listener.getsockname()[:2], timeout=SECONDS)

    def close(self) -> None:
        """Answer what waits, and end."""
        self.go_on.set()
        asyncio.run_coroutine_threadsafe(self._server.drain(SECONDS), self._loop).result(2 * SECONDS)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._listener.close()


@contextmanager
def served(limits: RequestLimits = RequestLimits(), most: int = MOST) -> Iterator[Served]:  # noqa: B008
    """A server, ended behind the block."""
    server = Served(limits, most)
    try:
        yield server
    finally:
        server.close()


def answer(link: socket.socket) -> HTTPResponse:
    """The next answer on a connection."""
    response = HTTPResponse(link)
    response.begin()
    response.read()
    return response


def ask(server: Served, path: bytes = b"/ping") -> HTTPResponse:
    """The answer to a request on a new connection."""
    with server.connect() as link:
        link.sendall(GET.replace(b"/ping", path))
        return answer(link)


def upload(link: socket.socket, declared: int, sent: int) -> None:
    """Send so much of a body."""
    head = b"POST /ping HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % declared
    link.sendall(head + bytes(sent))


@pytest.mark.parametrize(
    "start", [b"", b"GET", b"POST /ping HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{"]
)
def test_silent_connections_make_room_for_new_ones(start: bytes, caplog: pytest.LogCaptureFixture) -> None:
    """Whatever they have sent of a request; that it happens is said once, not for each."""
    limits = RequestLimits(MEGABYTE)
    with served(limits) as server, ExitStack() as held:
        for _ in range(4 * MOST):
            held.enter_context(server.connect()).sendall(start)
        assert [ask(server).status for _ in range(3)] == [200] * 3
    assert caplog.text.count("idle ones are closed for new ones") == 1


def test_the_connection_that_was_used_last_is_kept() -> None:
    """A client that keeps its connection busy is not taken for one that has forgotten it."""
    with served() as server, ExitStack() as held, server.connect() as used:
        for _ in range(4 * MOST):
            held.enter_context(server.connect())
            used.sendall(GET)
            assert answer(used).status == 200


def test_requests_that_are_answered_are_never_closed_for_others() -> None:
    """New clients get 503, and are told to come again."""
    with served() as server, ExitStack() as held:
        waiting = [held.enter_context(server.connect()) for _ in range(MOST)]
        for link in waiting:
            link.sendall(GET.replace(b"/ping", b"/wait"))
        refused = ask(server)
        server.go_on.set()
        assert [answer(link).status for link in waiting] == [200] * MOST
    assert (refused.status, refused.getheader("Retry-After")) == (503, "1")


def test_a_small_limit_of_open_files_stops_nothing() -> None:
    """200 idle connections of 64 files, all at once: others are answered, and no error is logged."""
    with subprocess.Popen(
        [sys.executable, "-c", SERVER], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            port = int(process.stdout.readline())
            with ExitStack() as held:
                for _ in range(200):
                    held.enter_context(socket.create_connection(("127.0.0.1", port), timeout=SECONDS))
                with socket.create_connection(("127.0.0.1", port), timeout=SECONDS) as link:
                    link.sendall(GET)
                    assert answer(link).status == 200
        finally:
            process.kill()
        assert process.stderr is not None
        log = process.stderr.read()
    assert re.findall("(?m)^WARNING.*", log) == [
        "WARNING:tfs_proxy.wire.server.bounds:32 connections are open: idle ones are closed for new ones"
    ]
    assert "Too many open files" not in log


class WatchedMemory(BodyMemory):
    """The memory of all bodies, for which nobody waits; a test reads what they hold."""

    def __init__(self, limit_mb: int) -> None:
        super().__init__(limit_mb * MEGABYTE, wait_seconds=0.0)
        self.held = 0

    async def take(self, size_bytes: int) -> None:
        """Count what was taken."""
        await super().take(size_bytes)
        self.held += size_bytes

    def give_back(self, size_bytes: int) -> None:
        """Count it no more."""
        super().give_back(size_bytes)
        self.held -= size_bytes


def memory(limit_mb: int) -> RequestLimits:
    """Limits with so much memory for all bodies, for which nobody waits."""
    return RequestLimits(100 * MEGABYTE, memory=WatchedMemory(limit_mb))


def test_bodies_together_are_bounded_as_they_arrive() -> None:
    """503 for the one too many, however far it has come; it is taken once the others have ended."""
    bodies = WatchedMemory(40)
    limits = RequestLimits(100 * MEGABYTE, memory=bodies)
    with served(limits) as server, server.connect() as stalled, server.connect() as refused:
        upload(stalled, 16 * MEGABYTE, 15 * MEGABYTE)
        wait_until(lambda: bodies.held > 28 * MEGABYTE, SECONDS, "the stalled body is held, twice")
        upload(refused, 16 * MEGABYTE, 16 * MEGABYTE)
        response = answer(refused)
        assert (response.status, response.getheader("Retry-After")) == (503, "1")

        stalled.sendall(bytes(MEGABYTE))
        assert answer(stalled).status == 200
        with server.connect() as again:
            upload(again, 16 * MEGABYTE, 16 * MEGABYTE)
            assert answer(again).status == 200


def test_what_is_only_declared_takes_no_memory() -> None:
    """Ten clients that promise 100 MB and send nothing keep nobody from sending it."""
    with served(memory(50), most=100) as server, ExitStack() as held:
        for _ in range(10):
            upload(held.enter_context(server.connect()), 100 * MEGABYTE, 10)
        with server.connect() as link:
            upload(link, 16 * MEGABYTE, 16 * MEGABYTE)
            assert answer(link).status == 200


def test_an_upload_that_is_closed_gives_its_memory_back() -> None:
    """As one that ended."""
    with served(memory(40)) as server:
        with server.connect() as gone:
            upload(gone, 17 * MEGABYTE, 16 * MEGABYTE)
        status = 503
        while status == 503:
            with server.connect() as link:
                upload(link, 16 * MEGABYTE, 16 * MEGABYTE)
                status = answer(link).status
        assert status == 200
