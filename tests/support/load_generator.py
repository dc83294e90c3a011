"""Clients that keep sending numbered requests, and note what became of each."""

import contextlib
import http.client
import itertools
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from support.running import LOOPBACK
from support.waiting import within

CLIENTS = 8
TIMEOUT_SECONDS = 60.0
PAUSE_SECONDS = 0.05
"""After a request that was not answered."""

RESET_SECONDS = 0.5
CONNECTION_CLOSED = 7
"""TCP_CLOSE, the first byte of the kernel's TCP_INFO."""

ANSWERED, NOT_ACCEPTED = "answered", "not accepted"


class Unread(Exception):
    """The connection ended with the request unread: no process has accepted it."""


class Lost(Exception):
    """The request was read, and no whole answer came; ``at`` is when that was seen."""

    def __init__(self, how: str) -> None:
        super().__init__(how)
        self.at = time.monotonic()


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one request, when it was sent, and when that was seen."""

    number: int
    how: str
    sent_at: float
    at: float


class Load:
    """``clients`` threads, each on a kept connection, that send half_plus_two a number each until ``finish``."""

    def __init__(self, connect: Callable[[], socket.socket], clients: int = CLIENTS) -> None:
        self.outcomes: list[Outcome] = []
        self._connect = connect
        self._numbers = itertools.count(1)
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._send, daemon=True) for _ in range(clients)]
        for thread in self._threads:
            thread.start()

    def answered(self) -> int:
        """How many were answered rightly so far."""
        return sum(outcome.how == ANSWERED for outcome in self.outcomes.copy())

    def finish(self) -> None:
        """Stop sending."""
        self._over.set()
        for thread in self._threads:
            thread.join(TIMEOUT_SECONDS + 10)
        assert not any(thread.is_alive() for thread in self._threads)

    def _send(self) -> None:
        link: socket.socket | None = None
        while not self._over.is_set():
            number, sent_at = next(self._numbers), time.monotonic()
            try:
                how, link = self._one(number, link)
                at = time.monotonic()
            except Lost as error:
                how, link, at = f"cut: {error}", None, error.at
            self.outcomes.append(Outcome(number, how, sent_at, at))
            if how != ANSWERED:
                self._over.wait(PAUSE_SECONDS)
        if link is not None:
            link.close()

    def _one(self, number: int, idle: socket.socket | None) -> tuple[str, socket.socket | None]:
        """How one request ends, and the connection if it is kept; one never read on a kept connection goes again.

        Raises Lost.
        """
        try:
            link = idle or self._connect()
            link.settimeout(TIMEOUT_SECONDS)
        except OSError:
            return NOT_ACCEPTED, None
        try:
            reply, body = exchange(link, json.dumps({"instances": [float(number)]}).encode())
        except Unread:
            link.close()
            return self._one(number, None) if idle is not None else (NOT_ACCEPTED, None)
        except Lost:
            link.close()
            raise
        if reply.will_close:
            link.close()
        return _how(reply.status, body, number), None if reply.will_close else link


def _how(status: int, body: bytes, number: int) -> str:
    if status != 200:
        return f"refused {status}"
    of_the_model, echo = {"predictions": [number / 2 + 2]}, {"instances": [number]}
    return ANSWERED if json.loads(body) in (of_the_model, echo) else f"wrong: {body[:200]!r}"


def exchange(link: socket.socket, body: bytes) -> tuple[http.client.HTTPResponse, bytes]:
    """POST ``body``; the answer. Raises Unread or Lost."""
    head = f"POST /invocations HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    try:
        # One segment: a server that has read the first byte has read them all.
        link.sendall(head.encode() + body)
        begun = link.recv(1, socket.MSG_PEEK)
    except ConnectionError as error:  # closed with the request in its buffer, or before that came
        raise Unread from error
    except TimeoutError as error:
        raise Lost("no answer in time") from error
    if not begun:
        lost = Lost("closed without an answer")
        raise Unread if was_reset(link) else lost
    try:
        reply = http.client.HTTPResponse(link, method="POST")
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
    """A load that ends with the block, whatever happens; each of its requests has to be answered."""
    sending = Load(lambda: socket.create_connection((LOOPBACK, port), TIMEOUT_SECONDS), clients)
    try:
        yield sending
    finally:
        sending.finish()
    assert {outcome.how for outcome in sending.outcomes} == {ANSWERED}
