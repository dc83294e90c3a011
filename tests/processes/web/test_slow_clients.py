"""Clients that are slow or silent, at workers with nothing in front: they take no thread, and not for ever."""

import resource
import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing
from http.client import HTTPResponse

import pytest

from support.gunicorn_workers import LIMIT_BYTES, Workers, error_text, workers
from tfs_proxy.resources import raise_descriptor_limit

ECHO = """
def handler(data, context):
    return data.read(), "text/plain"
"""
CLIENTS = 300
POST = b"POST /invocations HTTP/1.1\r\nHost: x\r\nContent-Type: text/plain\r\n"
SIZED = POST + b"Content-Length: 90000\r\n\r\n"
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"
TOO_LARGE = POST + b"Content-Length: %d\r\n\r\n" % (LIMIT_BYTES + 1)
PARTS = [POST[:1], POST, SIZED, SIZED + b"x" * 70_000, CHUNKED, CHUNKED + b"5\r\nab"]
NAMES = ["one byte", "half a head", "no body", "half a body", "no chunk", "half a chunk"]


@pytest.fixture(scope="module")
def two_threads() -> Iterator[Workers]:
    """One worker with two threads that answers with the body it got."""
    raise_descriptor_limit()
    with workers("gthread", ECHO, {"SAGEMAKER_GUNICORN_THREADS": "2"}) as started:
        started.wait_for_heartbeats()
        yield started


def connected(port: int, sent: bytes) -> socket.socket:
    """A client that has sent this."""
    client = socket.create_connection(("127.0.0.1", port), timeout=90)
    client.sendall(sent)
    return client


def received(client: socket.socket) -> bytes:
    """All that comes until the connection closes."""
    return b"".join(iter(lambda: client.recv(65536), b""))


def assert_serves(running: Workers) -> None:
    """Both paths are answered."""
    assert b"HTTP/1.1 503" in running.raw(b"GET /ping HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    assert running.post(b"1,2,3", "Content-Type: text/plain")[::2] == (200, b"1,2,3")


@pytest.mark.parametrize("part", PARTS, ids=NAMES)
def test_clients_that_wait_hold_no_thread(two_threads: Workers, part: bytes) -> None:
    """Three hundred of them, two threads: /ping and /invocations are answered."""
    with ExitStack() as held:
        for _ in range(CLIENTS):
            held.enter_context(closing(connected(two_threads.port, part)))
        assert_serves(two_threads)


def test_clients_that_are_refused_hold_no_thread(two_threads: Workers) -> None:
    """They have their 413, and neither send the body nor close."""
    with ExitStack() as held:
        clients = [held.enter_context(closing(connected(two_threads.port, TOO_LARGE))) for _ in range(50)]
        assert_serves(two_threads)
        answers = [received(client) for client in clients]

    assert all("SAGEMAKER_MAX_PAYLOAD_IN_MB" in error_text(answer, 413) for answer in answers)


def test_a_request_that_does_not_arrive_in_time_is_408(two_threads: Workers) -> None:
    """Whichever part of it is missing; a connection on which nothing came stays, and serves."""
    with ExitStack() as held:
        idle = held.enter_context(closing(connected(two_threads.port, b"")))
        clients = [held.enter_context(closing(connected(two_threads.port, part))) for part in PARTS[:-3]]
        answers = [received(client) for client in clients]
        idle.sendall(POST + b"Connection: close\r\nContent-Length: 5\r\n\r\n1,2,3")
        served = received(idle)

    assert [error_text(answer, 408) for answer in answers] == ["the request did not arrive in time"] * 3
    assert served.endswith(b"\r\n\r\n1,2,3")


def test_a_client_that_asks_first_is_told_to_go_on(two_threads: Workers) -> None:
    """``Expect: 100-continue``: once, and then the answer."""
    with closing(connected(two_threads.port, SIZED[:-2] + b"Expect: 100-continue\r\n\r\n")) as client:
        go_on = client.recv(100)
        client.sendall(b"x" * 90_000)
        response = HTTPResponse(client)
        response.begin()
        body = response.read()

    assert go_on == b"HTTP/1.1 100 Continue\r\n\r\n"
    assert body == b"x" * 90_000


def test_requests_behind_each_other_may_be_cut_anywhere(two_threads: Workers) -> None:
    """Chunks, a sized body and a short one on one connection, in pieces that end in the next one."""
    sent = (
        CHUNKED
        + b"3\r\none\r\n0\r\n\r\n"
        + POST
        + b"Content-Length: 3\r\n\r\ntwo"
        + POST
        + b"Connection: close\r\nContent-Length: 5\r\n\r\nthree"
    )
    for size in (7, 100, 150, 211):
        with closing(connected(two_threads.port, b"")) as client:
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for start in range(0, len(sent), size):
                client.sendall(sent[start : start + size])
            answers = received(client)

        assert [
            line
            for line in answers.split(b"\r\n")
            if line in {b"oneHTTP/1.1 200 OK", b"twoHTTP/1.1 200 OK", b"three"}
        ] == [
            b"oneHTTP/1.1 200 OK",
            b"twoHTTP/1.1 200 OK",
            b"three",
        ]


@pytest.mark.parametrize("part", [b"", POST], ids=["idle", "half a head"])
def test_without_descriptors_the_longest_idle_connection_is_closed(part: bytes) -> None:
    """A worker that may open 60 files has 1,100 clients: the first are gone, the next one is served."""
    raise_descriptor_limit()
    with workers("gthread", ECHO) as running, ExitStack() as held:
        running.wait_for_heartbeats()
        resource.prlimit(running.heartbeats[0], resource.RLIMIT_NOFILE, (60, 60))
        clients = [held.enter_context(closing(connected(running.port, part))) for _ in range(1100)]
        assert_serves(running)

        assert received(clients[0]) == b""
