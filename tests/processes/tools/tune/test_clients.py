"""The load generator against a real server: keep-alive, closed connections, refusals, large bodies."""

import socketserver
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from tfs_proxy.tools.tune.clients import ClosedLoop

GOOD = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
LAST = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"
BUSY = b"HTTP/1.1 503 Busy\r\nContent-Length: 4\r\n\r\nbusy"
SMALL = b"POST / HTTP/1.1\r\nContent-Length: 2\r\n\r\nhi"
LARGE = b"POST / HTTP/1.1\r\nContent-Length: 3000000\r\n\r\n" + 3_000_000 * b"x"
Answer = Callable[[int], bytes | None]


@contextmanager
def server(answer: Answer) -> Iterator[tuple[str, int]]:
    """Answers request ``n`` of each connection with ``answer(n)``; None closes it without a word."""

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            number = 0
            while self.rfile.readline():
                length = int(self.rfile.readline().split(b":")[1])
                self.rfile.readline()
                self.rfile.read(length)
                sent = answer(number)
                if sent is None:
                    return
                self.wfile.write(sent)
                if b"Connection: close" in sent:
                    return
                number += 1

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True

        def handle_error(self, request: object, client_address: object) -> None:
            """A client that stops in the middle of an answer is none of the server's."""

    with Server(("127.0.0.1", 0), Handler) as listening:
        thread = threading.Thread(target=listening.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield "127.0.0.1", listening.server_address[1]
        finally:
            listening.shutdown()
            thread.join()


@pytest.mark.parametrize("request_bytes", [SMALL, LARGE])
def test_requests_are_answered_on_kept_connections(request_bytes: bytes) -> None:
    """Small bodies and such as do not fit into a socket's buffer; all answers are good."""
    with server(lambda _number: GOOD) as address:
        level = ClosedLoop(address, [request_bytes]).load(3, 0.05, 0.3)

    assert level.failures == {}
    assert level.rate > 0
    assert 0 < level.p50_ms <= level.p99_ms


@pytest.mark.parametrize("last", [LAST, None])
def test_a_server_may_close_kept_connections(last: bytes | None) -> None:
    """Said in the answer, or without a word between two requests: that is no failure, but a new connection."""
    with server(lambda number: last if number == 3 else GOOD) as address:
        level = ClosedLoop(address, [SMALL]).load(2, 0, 0.2)

    assert level.failures == {}
    assert level.rate > 4 / 0.2


def test_refusals_and_lost_answers_are_named() -> None:
    with server(lambda _number: BUSY) as address:
        refused = ClosedLoop(address, [SMALL]).load(2, 0, 0.1)
    with server(lambda _number: None) as address:
        lost = ClosedLoop(address, [SMALL]).load(2, 0, 0.1)
    gone = ClosedLoop(address, [SMALL]).load(2, 0, 5)

    assert list(refused.failures) == ["status 503"]
    assert list(lost.failures) == ["the connection was closed before the answer"]
    assert gone.failures == {"no connection: Connection refused": 2}
    assert {refused.rate, lost.rate, gone.rate} == {0}
