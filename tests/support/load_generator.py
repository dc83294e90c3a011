"""Clients that keep sending requests, and count what became of each."""

import contextlib
import http.client
import json
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator

from support.running import LOOPBACK
from support.waiting import within

CLIENTS = 8
RESET_SECONDS = 0.5
CONNECTION_CLOSED = 7
"""TCP_CLOSE, the first byte of the kernel's TCP_INFO."""


class Unread(Exception):
    """The connection ended with the request unread: no process has accepted it."""


class Lost(Exception):
    """The request was read, and no whole answer came; ``at`` is when that was seen."""

    def __init__(self, how: str) -> None:
        super().__init__(how)
        self.at = time.monotonic()


class Load:
    """``clients`` threads, each on a kept-alive connection, until ``finish``.

    A request counts as accepted once its first byte was read. One that was not is sent again if its
    connection was idle (``resent``), and is ``refused`` if the connection is new; all else that is
    not ``answered`` has ``failed``.
    """

    def __init__(self, port: int, clients: int = CLIENTS, timeout_seconds: float = 60) -> None:
        self.port = port
        self.timeout_seconds = timeout_seconds
        self.counts: Counter[str] = Counter()
        self.failures: list[str] = []
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._send, args=(n,), daemon=True) for n in range(clients)]
        for thread in self._threads:
            thread.start()

    def finish(self) -> Counter[str]:
        """Stop sending; the counts by outcome."""
        self._over.set()
        for thread in self._threads:
            thread.join(self.timeout_seconds + 5)
        assert not any(thread.is_alive() for thread in self._threads)
        return self.counts

    def _send(self, number: int) -> None:
        link: socket.socket | None = None
        turn = number
        while not self._over.is_set():
            turn += 1
            link = self._one(link, float(turn % 1000))
        if link is not None:
            link.close()

    def _one(self, idle: socket.socket | None, value: float) -> socket.socket | None:
        """Send one request; the connection, if it is kept."""
        try:
            link = idle or socket.create_connection((LOOPBACK, self.port), self.timeout_seconds)
        except OSError as error:
            self._refused(f"refused: {error}")
            return None
        try:
            reply, body = exchange(link, json.dumps({"instances": [value]}).encode())
        except Unread:
            link.close()
            if idle is not None:
                self._count("resent")
                return self._one(None, value)
            self._refused("refused: a new connection was closed with the request unread")
            return None
        except Lost as error:
            link.close()
            self._fail(f"{'kept' if idle else 'new'} connection: {error}")
            return None
        if reply.status == 200 and json.loads(body) == {"predictions": [value / 2 + 2]}:
            self._count("answered")
        else:
            self._fail(f"{reply.status} {body[:200]!r}")
        if reply.will_close:
            self._count("closing")
            link.close()
            return None
        return link

    def _refused(self, how: str) -> None:
        with self._lock:
            self.counts["refused"] += 1
            self.failures.append(how)
        time.sleep(0.01)

    def _count(self, outcome: str) -> None:
        with self._lock:
            self.counts[outcome] += 1

    def _fail(self, how: str) -> None:
        with self._lock:
            self.counts["failed"] += 1
            self.failures.append(how)


def exchange(link: socket.socket, body: bytes) -> tuple[http.client.HTTPResponse, bytes]:
    """POST ``body``; the answer. Raises Unread or Lost."""
    head = f"POST /invocations HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    return exchange_raw(link, head.encode() + body, "POST")


def exchange_raw(link: socket.socket, request: bytes, method: str) -> tuple[http.client.HTTPResponse, bytes]:
    """Send a whole request; the answer. Raises Unread or Lost."""
    try:
        # One segment: a server that has read the first byte has read them all.
        link.sendall(request)
        begun = link.recv(1, socket.MSG_PEEK)
    except ConnectionError as error:  # closed with the request in its buffer, or before that came
        raise Unread from error
    except TimeoutError as error:
        raise Lost("no answer in time") from error
    if not begun:
        lost = Lost("closed without an answer")
        raise Unread if was_reset(link) else lost
    try:
        reply = http.client.HTTPResponse(link, method=method)
        reply.begin()
        return reply, reply.read()
    except (OSError, http.client.HTTPException) as error:
        raise Lost(f"broken answer: {error!r}") from error


def was_reset(link: socket.socket) -> bool:
    """Whether a connection that the server closed in order was reset after that.

    The kernel does so with bytes that arrive when nobody can read them any more: the request came after
    the close. Without a reset the server had read all that it got.
    """
    return within(RESET_SECONDS, lambda: _is_closed(link), pause=0.005)


def _is_closed(link: socket.socket) -> bool:
    return link.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] == CONNECTION_CLOSED


@contextlib.contextmanager
def load(port: int, clients: int = CLIENTS) -> Iterator[Load]:
    """A load that ends with the block, whatever happens."""
    sending = Load(port, clients)
    try:
        yield sending
    finally:
        sending.finish()
