"""The sockets of one worker while another thread closes them."""

import math
import socket

import pytest
from gunicorn.config import Config

from tfs_proxy.web.workers.threads.client import ClientConnection
from tfs_proxy.web.workers.threads.connections import WorkerConnections
from tfs_proxy.web.workers.threads.poller import Poller

SECONDS = 60


class ClosedMeanwhile(socket.socket):
    """A listener that the main thread closes just after a connection was accepted."""

    def accept(self) -> tuple[socket.socket, object]:
        """As in the base, then close."""
        accepted = super().accept()
        self.close()
        return accepted


def connection(client: socket.socket, address: object, server: object) -> ClientConnection:
    """A connection as the worker makes it."""
    return ClientConnection(Config(), client, address, server)


def test_a_connection_accepted_as_the_worker_stops_is_kept() -> None:
    """Its client has sent a request, which would be lost with it."""
    connections = WorkerConnections(Poller(lambda _descriptor: None, lambda: 1), connection, 10)
    listener = ClosedMeanwhile()
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    connections.listen([listener], [])
    with socket.create_connection(listener.getsockname()) as client:
        connections.take(listener.fileno())
        client.setblocking(False)

        assert connections.count == 1
        with pytest.raises(BlockingIOError):
            client.recv(1)
        connections.close_idle(math.inf)


def test_a_listener_that_is_closed_takes_nothing_in(caplog: pytest.LogCaptureFixture) -> None:
    """A thread that was woken for it finds no connection, and nobody is warned."""
    connections = WorkerConnections(Poller(lambda _descriptor: None, lambda: 1), connection, 10)
    listener = socket.create_server(("127.0.0.1", 0))
    connections.listen([listener], [])
    descriptor = listener.fileno()
    listener.close()

    connections.take(descriptor)

    assert (connections.count, caplog.messages) == (0, [])
