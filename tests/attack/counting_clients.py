"""Clients that send a mix of requests of every kind, and count them by what they were answered."""

import itertools
import socket
import threading
from collections import Counter
from dataclasses import dataclass

import grpc

from attack.fronts import Front
from support.load_generator import Lost, Unread, exchange_raw

CLIENTS = 6
GRPC_PAUSE_SECONDS = 0.01
SECONDS = 60.0
HUNG_UP = "hung up"

Labels = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class Request:
    """One kind of request: the bytes, and the route under which it counts."""

    method: str
    target: str
    route: str
    body: bytes = b""
    content_type: str = "application/json"
    declared_bytes: int | None = None

    @property
    def sent(self) -> bytes:
        length = len(self.body) if self.declared_bytes is None else self.declared_bytes
        head = f"{self.method} {self.target} HTTP/1.1\r\nHost: x\r\nContent-Type: {self.content_type}\r\n"
        return f"{head}Content-Length: {length}\r\n\r\n".encode() + self.body


INVOCATIONS, MODEL = "/invocations", "/v1/models/{model}"
INSTANCES = b'{"instances": [1.0]}'
PREDICT = Request("POST", INVOCATIONS, INVOCATIONS, INSTANCES)
MIX: tuple[Request | None, ...] = (
    *(PREDICT,) * 4,
    *(Request("GET", "/v1/models/half_plus_two", MODEL),) * 4,
    Request("POST", "/v1/models/half_plus_two:predict", f"{MODEL}:predict", INSTANCES),
    Request("POST", INVOCATIONS, INVOCATIONS, b"1.0\n", "text/csv"),
    Request("POST", INVOCATIONS, INVOCATIONS, b"?", "application/x-unknown"),
    Request("POST", INVOCATIONS, INVOCATIONS, declared_bytes=2_000_000),
    Request("GET", INVOCATIONS, INVOCATIONS),
    Request("GET", "/nothing/here", "other"),
    Request("GET", "/execution-parameters", "/execution-parameters"),
    None,
)
"""None is a client that hangs up in the middle of its body."""


class Clients:
    """Threads that send the mix, each on a kept connection, and count by what they were answered."""

    def __init__(self, front: Front) -> None:
        self._front = front
        self._over = threading.Event()
        self._counts = [Counter[Labels]() for _ in range(CLIENTS)]
        self._cuts = [0] * CLIENTS
        self._threads = [
            threading.Thread(target=self._send, args=(number,), daemon=True) for number in range(CLIENTS)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def sent(self) -> int:
        return sum(counts.total() for counts in self._counts) + sum(self._cuts)

    def finish(self) -> tuple[Counter[Labels], int]:
        """Send no more; the answered ones, and how many broke off."""
        self._over.set()
        for thread in self._threads:
            thread.join(SECONDS + 10)
        assert not any(thread.is_alive() for thread in self._threads)
        return sum(self._counts, Counter()), sum(self._cuts)

    def _send(self, number: int) -> None:
        link: socket.socket | None = None
        for request in itertools.islice(itertools.cycle(MIX), number, None):
            if self._over.is_set():
                break
            try:
                labels, link = self._one(request, link)
                self._counts[number][labels] += 1
            except Lost:
                link = None
                self._cuts[number] += 1
            except OSError:  # nobody listens: it was not sent
                link = None
                self._over.wait(0.05)
        if link is not None:
            link.close()

    def _one(
        self, request: Request | None, idle: socket.socket | None
    ) -> tuple[Labels, socket.socket | None]:
        """Send one; its labels, and the connection if it is kept. Raises Lost, or OSError if nothing was sent."""
        if request is None:
            with self._front.connect() as link:
                link.sendall(Request("POST", INVOCATIONS, INVOCATIONS, b"{", declared_bytes=9).sent)
            return (INVOCATIONS, "POST", HUNG_UP), idle
        link = idle or self._front.connect()
        link.settimeout(SECONDS)
        try:
            reply, _ = exchange_raw(link, request.sent, request.method)
        except Unread as error:
            link.close()
            if idle is None:
                raise ConnectionResetError from error
            return self._one(request, None)
        except (Lost, OSError):
            link.close()
            raise
        # Behind a body that was not sent, a server would take the next request for it.
        is_kept = not reply.will_close and request.declared_bytes is None
        if not is_kept:
            link.close()
        return (request.route, request.method, str(reply.status)), link if is_kept else None


class GrpcClient:
    """A thread that calls methods which do not exist, and counts those that were refused."""

    def __init__(self, address: str) -> None:
        self._channel = grpc.insecure_channel(address)
        self._over = threading.Event()
        self.refused = self.cut = 0
        self._thread = threading.Thread(target=self._call, daemon=True)
        self._thread.start()

    def finish(self) -> None:
        self._over.set()
        self._thread.join(SECONDS)
        self._channel.close()

    def _call(self) -> None:
        method = self._channel.unary_unary("/made.up.Service/Call")
        while not self._over.wait(GRPC_PAUSE_SECONDS):
            try:
                method(b"", timeout=SECONDS, wait_for_ready=True)
            except grpc.RpcError as error:
                refused = error.code() is grpc.StatusCode.UNIMPLEMENTED
                self.refused += refused
                self.cut += not refused
