"""The sockets of one worker while another thread closes them."""

import math
import queue
import socket
from pathlib import Path

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


def test_listeners_of_others_are_attended_until_they_have_an_owner(tmp_path: Path) -> None:
    """What came to one meanwhile is known, so that its connections can go where they belong."""
    woken: queue.Queue[int] = queue.Queue()
    poller = Poller(woken.put, lambda: 1)
    connections = WorkerConnections(poller, connection, 10)
    own, other = (unix_listener(tmp_path / name) for name in ("own", "other"))
    connections.listen([own], [other])
    connections.attend([own, other])
    poller.add_thread()
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(other.getsockname())
        assert woken.get(timeout=SECONDS) == other.fileno()
        connections.take(other.fileno())
        client.sendall(b".")
        taken = connections.take(woken.get(timeout=SECONDS))
        assert taken is not None

        before = connections.is_handed_over(taken)
        connections.attend([])
        assert (before, connections.is_handed_over(taken)) == (False, True)
        assert connections.take(other.fileno()) is None  # a thread that was woken for it before
        connections.attend([other])
        assert not connections.is_handed_over(taken)
    connections.end(taken)
    connections.stop_listening()
    poller.stop()


def unix_listener(path: Path) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen()
    return listener


def test_a_listener_that_is_closed_takes_nothing_in(caplog: pytest.LogCaptureFixture) -> None:
    """A thread that was woken for it finds no connection, and nobody is warned."""
    connections = WorkerConnections(Poller(lambda _descriptor: None, lambda: 1), connection, 10)
    listener = socket.create_server(("127.0.0.1", 0))
    connections.listen([listener], [])
    descriptor = listener.fileno()
    listener.close()

    connections.take(descriptor)

    assert (connections.count, caplog.messages) == (0, [])
