"""A client's connection in the thread worker: what it does to clients that don't read, and those that end."""

import re
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from gunicorn.config import Config

from tfs_proxy.web.workers.threads.arrival import Arrival, Budget, Room
from tfs_proxy.web.workers.threads.client import ClientConnection


@pytest.fixture
def pair() -> Iterator[tuple[ClientConnection, socket.socket]]:
    """A connection and its client."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ClientConnection(Config(), ours, "", ""), theirs


def test_a_client_that_takes_nothing_of_its_answer_is_given_up(
    pair: tuple[ClientConnection, socket.socket],
) -> None:
    """A blocking send fails, and its thread is free."""
    connection, _client = pair
    connection.sock.setblocking(True)
    connection.limit_sending(0.02)

    with pytest.raises(BlockingIOError):
        connection.sock.sendall(b"x" * 10_000_000)


def test_an_end_reads_away_what_the_client_still_sends(pair: tuple[ClientConnection, socket.socket]) -> None:
    """Until the client ends, too."""
    connection, client = pair
    client.sendall(b"x" * 1000)

    assert connection.begin_end()
    assert client.recv(1) == b""
    client.sendall(b"x" * 1000)
    assert connection.discard()
    client.close()
    assert not connection.discard()


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        (b"POST / HTTP/1.1\r\nx-request-id: mine\r\nContent-Length: 5\r\n\r\n", "mine"),
        (b"POST / HTTP/1.1\r\nX-Request-Id: cut-o", "[0-9a-f]{32}"),
        (b"POST / HTTP/1.1\r\nX-Request-Id: a\tb\r\n", "[0-9a-f]{32}"),
    ],
)
def test_a_request_that_comes_too_slowly_has_one_id(
    pair: tuple[ClientConnection, socket.socket], tmp_path: Path, head: bytes, expected: str
) -> None:
    """On its 408, and where it is logged."""
    connection, client = pair
    noted: list[tuple[int, str]] = []
    connection.unserved = lambda _head, status, request_id, _reason: noted.append((status, request_id))
    connection.arrival = Arrival(Room(1000, tmp_path, Budget(1000)))
    connection.arrival.add(head)

    connection.expire()

    ids = re.findall(rb"X-Request-Id: (\S+)\r\n", client.recv(10_000))
    assert noted == [(408, ids[0].decode())]
    assert re.fullmatch(expected, noted[0][1])
