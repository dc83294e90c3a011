"""A stop in a container without capabilities: no request is lost that was sent in full before it."""

import socket
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from support.containers import Container, container, docker, mounted
from support.multi_model import script_model

BEFORE, AFTER = 100, 20
SECONDS = 60.0
WITHOUT_RIGHTS = ("--cap-drop", "ALL", "--user", "1000")
FEW_THREADS = {"SAGEMAKER_GUNICORN_WORKERS": "1", "SAGEMAKER_GUNICORN_THREADS": "4"}
SLOW = """
import time

def model_fn(folder):
    return "slow"

def transform_fn(model, data, content_type, accept):
    time.sleep(0.02)
    return model, "text/plain"
"""
REQUEST = (
    b"POST /invocations HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
    b"Content-Length: 5\r\nConnection: close\r\n\r\n[1.0]"
)


def at(running: Container) -> tuple[str, int]:
    """The container's own address: Docker's proxy would accept connections for it."""
    shape = "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}"
    return docker("inspect", "--format", shape, running.name), 8080


def outcome(link: socket.socket) -> str:
    """The status of the answer that comes on a connection, or what came in its place."""
    with link:
        try:
            received = b""
            while part := link.recv(4096):
                received += part
        except OSError as error:
            return type(error).__name__
    return received[9:12].decode() or "nothing"


def sent(address: tuple[str, int]) -> socket.socket:
    link = socket.create_connection(address, timeout=SECONDS)
    link.sendall(REQUEST)
    return link


def late(address: tuple[str, int], stopping: threading.Event) -> str:
    """The outcome of a request that is sent once the stop has begun."""
    stopping.wait()
    try:
        return outcome(sent(address))
    except OSError as error:
        return type(error).__name__


def stopped(archive: Path, nginx: str) -> Counter[str]:
    """Outcomes of requests that were sent before one stop, while others come after it."""
    env = {**FEW_THREADS, "TFS_PROXY_NGINX": nginx}
    stopping = threading.Event()
    with (
        container(*WITHOUT_RIGHTS, *mounted(archive), env=env) as running,
        ThreadPoolExecutor(BEFORE + AFTER) as pool,
    ):
        address = at(running)
        after = [pool.submit(late, address, stopping) for _ in range(AFTER)]
        links = list(pool.map(sent, [address] * BEFORE))
        stopping.set()
        docker("kill", "--signal", "TERM", running.name)
        before = Counter(pool.map(outcome, links))
        assert running.wait() == 0, running.log
        assert {each.result() for each in after}
        return before


@pytest.mark.parametrize("nginx", ["true", "false"])
def test_no_request_is_lost_that_was_sent_before_a_stop(tmp_path: Path, nginx: str) -> None:
    """By a user without rights, with nginx and without; later ones may be refused."""
    archive = script_model(tmp_path / "model.tar.gz", SLOW)
    archive.chmod(0o644)
    assert stopped(archive, nginx) == {"200": BEFORE}
