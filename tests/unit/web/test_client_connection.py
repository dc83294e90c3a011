"""A client's connection in the thread worker: what it does to clients that don't read, and those that end."""

import socket
from collections.abc import Iterator

import pytest
from gunicorn.config import Config

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
