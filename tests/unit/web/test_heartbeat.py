"""A worker's signs of life."""

import os
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tfs_proxy.web.workers.heartbeat import Heartbeat


def test_at_most_once_a_second(tmp_path: Path) -> None:
    """The pid goes out at once, then not again within a second."""
    now = [100.0]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(str(tmp_path / "beat"))
        receiver.setblocking(False)
        heartbeat = Heartbeat(tmp_path / "beat", clock=lambda: now[0])

        for seconds in (0.0, 0.5, 0.4, 0.2, 5.0):
            now[0] += seconds
            heartbeat.beat()

        received: list[bytes] = []
        while len(received) < 3:
            received.append(receiver.recv(64))
        heartbeat.close()

    assert received == [str(os.getpid()).encode()] * 3


def test_a_heartbeat_without_a_supervisor(tmp_path: Path) -> None:
    """If no supervisor listens, a beat is lost without an error."""
    heartbeat = Heartbeat(tmp_path / "no-supervisor")

    heartbeat.beat()

    heartbeat.close()
    assert not list(tmp_path.iterdir())


def test_a_heartbeat_that_is_not_read(tmp_path: Path) -> None:
    """A full socket neither blocks nor fails."""
    now = [0.0]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(str(tmp_path / "beat"))
        heartbeat = Heartbeat(tmp_path / "beat", clock=lambda: now[0])
        for _ in range(2000):
            now[0] += 2
            heartbeat.beat()
        heartbeat.close()
        assert receiver.recv(64) == str(os.getpid()).encode()


def test_what_must_arrive_waits_for_a_full_queue(tmp_path: Path) -> None:
    """Heartbeats have filled the queue: the start of loading is delivered once the supervisor reads."""
    now = [0.0]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver, ThreadPoolExecutor(1) as pool:
        receiver.bind(str(tmp_path / "beat"))
        heartbeat = Heartbeat(tmp_path / "beat", clock=lambda: now[0])
        for _ in range(2000):
            now[0] += 2
            heartbeat.beat()

        delivered = pool.submit(heartbeat.say_loading)
        receiver.settimeout(10)
        assert f"+{os.getpid()}".encode() in iter(lambda: receiver.recv(64), None)
        delivered.result(10)
        heartbeat.close()
