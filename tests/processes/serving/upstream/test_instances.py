"""Asking at the control API: a real unix socket with a tiny HTTP server behind it."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tfs_proxy.serving.upstream.instances import fetch_deployment, ping
from tfs_proxy.values.deployment import Deployment, Instance
from tfs_proxy.values.errors import UpstreamTimeout, UpstreamUnavailable

DEPLOYMENT = Deployment("m", {"m": (1, 2)}, (Instance(0, 1, 2, "/s"),), None, ("/code",), 100, 60.0)


@contextmanager
def _door(path: Path, reply: bytes | None) -> Iterator[list[bytes]]:
    """A control API that answers one request; ``reply`` None keeps it waiting."""
    seen: list[bytes] = []
    done = threading.Event()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                seen.append(connection.recv(65536))
                if reply is None:
                    done.wait(60)
                else:
                    connection.sendall(reply)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield seen
        done.set()
        thread.join(60)


def _http(status: str, body: bytes) -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


def test_deployment(tmp_path: Path) -> None:
    """The deployment arrives as the value that the supervisor made."""
    with _door(tmp_path / "door", _http("200 OK", DEPLOYMENT.to_json())) as seen:
        assert fetch_deployment(tmp_path / "door") == DEPLOYMENT
    assert seen[0].startswith(b"GET /deployment HTTP/1.1\r\n")


@pytest.mark.parametrize(
    "reply",
    [
        _http("503 Service Unavailable", b"{}"),
        _http("200 OK", b"[]"),
        _http("200 OK", b"{}"),
        b"nonsense",
        b"",
    ],
)
def test_no_deployment(tmp_path: Path, reply: bytes) -> None:
    """Everything but a deployment is an unavailable supervisor."""
    with _door(tmp_path / "door", reply), pytest.raises(UpstreamUnavailable, match="supervisor"):
        fetch_deployment(tmp_path / "door")


def test_ping(tmp_path: Path) -> None:
    """Status and body of the supervisor's ping are handed on."""
    with _door(tmp_path / "door", _http("503 Service Unavailable", b'{"error": "loading"}')) as seen:
        assert ping(tmp_path / "door") == (503, b'{"error": "loading"}')
    assert seen[0].startswith(b"GET /ping HTTP/1.1\r\n")


def test_closed_door(tmp_path: Path) -> None:
    """No socket there is an unavailable supervisor."""
    with pytest.raises(UpstreamUnavailable, match="can't be reached"):
        ping(tmp_path / "door")


def test_silent_door(tmp_path: Path) -> None:
    """No answer in time is a timeout."""
    with _door(tmp_path / "door", None), pytest.raises(UpstreamTimeout, match=r"0\.1 seconds"):
        ping(tmp_path / "door", 0.1)
