"""A closed loop of clients: many kept-alive connections in one thread, each with one request at a time.

Threads take turns for Python's lock and send 3,000 to 6,000 requests a second; one thread that waits for all
sockets sends about 20,000 (benchmarks/README.md, "What `tfs-proxy tune` finds").
"""

import itertools
import re
import selectors
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from msgspec import Struct

from tfs_proxy.tools.tune.measured import LoadLevel, LoadWindow

_END_OF_HEAD = b"\r\n\r\n"
_STATUS = re.compile(rb"HTTP/1\.[01] (\d{3})")
_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*(\d+)[ \t]*\r\n", re.IGNORECASE)
_CHUNKED = re.compile(rb"\r\ntransfer-encoding:[^\r]*chunked[ \t]*\r\n", re.IGNORECASE)
_CLOSE = re.compile(rb"\r\nconnection:[ \t]*close[ \t]*\r\n", re.IGNORECASE)
_INFORMATIONAL = range(100, 200)
_WITHOUT_BODY = (204, 304)


class AnswerEnd(Struct, frozen=True):
    """A whole answer: ``status``, length in bytes, and whether the connection ends with it."""

    status: int
    size: int
    closes: bool


class NotAnAnswer(Exception):
    """The bytes are not an HTTP answer that says where it ends."""


class _Head(Struct, frozen=True):
    """The head of an answer; ``length`` is None if the body comes in chunks."""

    status: int
    length: int | None
    closes: bool


def answer_end(received: bytes | bytearray) -> AnswerEnd | None:
    """The first answer in ``received``; None until it is complete. Raises NotAnAnswer."""
    start = 0
    while True:
        end = received.find(_END_OF_HEAD, start)
        if end < 0:
            return None
        head = _read_head(bytes(received[start : end + 2]))
        start = end + len(_END_OF_HEAD)
        if head.status not in _INFORMATIONAL:
            break
    size = _end_of_chunks(received, start) if head.length is None else start + head.length
    if size is None or size > len(received):
        return None
    return AnswerEnd(head.status, size, head.closes)


def _read_head(head: bytes) -> _Head:
    """Reads a head, which ends with a line end. Raises NotAnAnswer."""
    match = _STATUS.match(head)
    if match is None:
        raise NotAnAnswer("what came is not HTTP")
    status, length = int(match[1]), _LENGTH.search(head)
    closes = _CLOSE.search(head) is not None
    if status in _INFORMATIONAL or status in _WITHOUT_BODY:
        return _Head(status, 0, closes)
    if length is None and _CHUNKED.search(head) is None:
        raise NotAnAnswer("the answer does not say where it ends")
    return _Head(status, int(length[1]) if length else None, closes)


def _end_of_chunks(received: bytes | bytearray, position: int) -> int | None:
    while True:
        line_end = received.find(b"\r\n", position)
        if line_end < 0:
            return None
        try:
            size = int(bytes(received[position:line_end]).partition(b";")[0], 16)
        except ValueError:
            raise NotAnAnswer("a chunk has no size") from None
        position = line_end + 2 + size + 2
        if size == 0:
            return position if position <= len(received) else None


READ_BYTES = 256 * 1024
CONNECT_SECONDS = 5.0


class ClosedLoop:
    """Sends ``requests``, which include their heads, in turn to ``address`` while a load lasts."""

    def __init__(
        self,
        address: tuple[str, int],
        requests: Sequence[bytes],
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._address, self._requests, self._clock = address, itertools.cycle(requests), clock

    def load(self, connections: int, run_up_seconds: float, seconds: float) -> LoadLevel:
        """Keeps ``connections`` busy; only answers in the ``seconds`` after the run-up are counted."""
        begins = self._clock() + run_up_seconds
        window = LoadWindow(connections, begins, begins + seconds)
        with selectors.DefaultSelector() as selector:
            clients = [Client(self._address, selector, self._requests, window) for _ in range(connections)]
            try:
                self._run(clients, selector, window)
            finally:
                for client in clients:
                    client.close()
        return window.level()

    def _run(self, clients: Sequence["Client"], selector: selectors.BaseSelector, window: LoadWindow) -> None:
        for client in clients:
            client.send_next(self._clock())
        while (now := self._clock()) < window.ends and any(client.works for client in clients):
            for key, events in selector.select(window.ends - now):
                key.data(events, self._clock())
        window.unanswered([client.sent for client in clients if client.works])


class Client:
    """One connection; it works until connecting fails."""

    def __init__(
        self,
        address: tuple[str, int],
        selector: selectors.BaseSelector,
        requests: "itertools.cycle[bytes]",
        window: LoadWindow,
    ) -> None:
        self._address, self._selector, self._requests, self._window = address, selector, requests, window
        self._socket: socket.socket | None = None
        self._request = b""
        self._unsent = memoryview(b"")
        self._received = bytearray()
        self._is_reused, self._waits_to_write = False, False
        self.works = True
        self.sent = 0.0

    def send_next(self, now: float) -> None:
        """Sends the next request, on a new connection if there is none."""
        self._request, self.sent = next(self._requests), now
        self._send_whole()

    def close(self) -> None:
        if self._socket is not None:
            with suppress(KeyError):
                self._selector.unregister(self._socket)
            self._socket.close()
            self._socket = None

    def _send_whole(self) -> None:
        if self._socket is None and not self._connect():
            return
        self._unsent = memoryview(self._request)
        self._write()

    def _connect(self) -> bool:
        try:
            self._socket = socket.create_connection(self._address, CONNECT_SECONDS)
        except OSError as error:
            self._window.failed(f"no connection: {error.strerror or error}")
            self.works = False
            return False
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.setblocking(False)
        self._is_reused, self._waits_to_write = False, False
        self._received.clear()
        self._selector.register(self._socket, selectors.EVENT_READ, self._on_events)
        return True

    def _on_events(self, events: int, now: float) -> None:
        if events & selectors.EVENT_WRITE:
            self._write()
        if events & selectors.EVENT_READ and self._socket is not None:
            self._read(now)

    def _write(self) -> None:
        """Sends what the socket takes, and waits for it if there is more."""
        assert self._socket is not None  # noqa: S101 - the caller has connected it
        try:
            self._unsent = self._unsent[self._socket.send(self._unsent) :]
        except BlockingIOError:
            pass
        except OSError:
            self._unsent = memoryview(b"")  # the next read finds out why
        if bool(self._unsent) != self._waits_to_write:
            self._waits_to_write = bool(self._unsent)
            events = selectors.EVENT_READ | (selectors.EVENT_WRITE if self._unsent else 0)
            self._selector.modify(self._socket, events, self._on_events)

    def _read(self, now: float) -> None:
        assert self._socket is not None  # noqa: S101 - the caller has connected it
        try:
            piece = self._socket.recv(READ_BYTES)
        except BlockingIOError:
            return
        except OSError as error:
            self._ended(error.strerror or str(error), now)
            return
        if not piece:
            self._ended("the connection was closed before the answer", now)
            return
        self._received += piece
        try:
            answer = answer_end(self._received)
        except NotAnAnswer as error:
            self._fail(str(error), now)
            return
        if answer is None:
            return
        self._window.answered(answer.status, self.sent, now)
        del self._received[: answer.size]
        self._is_reused = True
        if (
            answer.closes or self._unsent
        ):  # the server answered early and did not read the rest of the request
            self.close()
        self.send_next(now)

    def _ended(self, how: str, now: float) -> None:
        """Handles a closed connection: a server may close a kept one just when the next request comes."""
        if self._is_reused and not self._received:
            self.close()
            self._send_whole()
            return
        self._fail(how, now)

    def _fail(self, how: str, now: float) -> None:
        self._window.failed(how)
        self.close()
        self.send_next(now)
