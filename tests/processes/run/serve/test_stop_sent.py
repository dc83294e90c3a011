"""What a client had sent in full when the run is stopped is answered, even if no process had read it yet."""

import os
import signal
import socket
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from support.archives import NEEDS_NGINX, stand_in_words, without_nginx
from support.stack import serving

COUNT = 16
SECONDS = 120.0
SCRIPT = """
import time


def handler(data, context):
    name = data.read().decode()
    time.sleep(0.15)  # all of them take longer, one after the other, than anyone lingers for idle clients
    return name, "text/plain"
"""
MANY = 40
STANDSTILL_SECONDS = 1.2
WITHOUT_CAPABILITIES = ["setpriv", "--bounding-set=-net_admin"] if os.geteuid() == 0 else []
ONE_AT_A_TIME = {"SAGEMAKER_GUNICORN_WORKERS": "1", "SAGEMAKER_GUNICORN_THREADS": "1"}


def cases() -> list[object]:
    """Each worker class without nginx, and the usual one behind it."""
    named = [
        pytest.param({**without_nginx(), "SAGEMAKER_GUNICORN_WORKER_CLASS": name}, id=name)
        for name in ("gthread", "sync", "gevent")
    ]
    return [*named, pytest.param({}, id="nginx", marks=NEEDS_NGINX)]


def post(name: str) -> bytes:
    """A whole request."""
    return (
        "POST /invocations HTTP/1.1\r\nHost: a\r\nContent-Type: text/plain\r\n"
        f"Content-Length: {len(name)}\r\n\r\n{name}"
    ).encode()


def answer(link: socket.socket, name: str) -> bytes:
    """What came back, up to the body or the end of the connection."""
    received = b""
    try:
        while not received.endswith(name.encode()) and (part := link.recv(4096)):
            received += part
    except ConnectionResetError:
        received += b"<reset>"
    return received


def last_answer(link: socket.socket, number: int) -> bytes:
    """The answer, after which the client closes, as its header demands: a worker waits a while for that."""
    with link:
        return answer(link, f"sent{number}")


@pytest.mark.parametrize("env", cases())
def test_every_request_that_was_sent_in_full_is_answered(tmp_path: Path, env: Mapping[str, str]) -> None:
    """On new connections, and on eight that had an answer before: sixteen sent, sixteen answered."""
    with serving(*stand_in_words(tmp_path, SCRIPT), env={**ONE_AT_A_TIME, **env}) as stack:
        links = [socket.create_connection((stack.host, stack.port), timeout=SECONDS) for _ in range(COUNT)]
        for number, link in enumerate(links[: 0 if "sync" in env.values() else COUNT // 2]):
            link.sendall(post(f"before{number}"))
            assert answer(link, f"before{number}").startswith(b"HTTP/1.1 200")
        for number, link in enumerate(links):
            link.sendall(post(f"sent{number}"))
        stack.process.send_signal(signal.SIGTERM)

        with ThreadPoolExecutor(COUNT) as pool:
            answers = list(pool.map(last_answer, links, range(COUNT)))
        lost = [answer for answer in answers if not answer.startswith(b"HTTP/1.1 200")]
        assert (lost, stack.wait()) == ([], 0)


@NEEDS_NGINX
def test_what_nginx_had_no_time_to_accept_is_answered_without_capabilities(tmp_path: Path) -> None:
    """A container has no right to filter packets: forty requests wait in the queue while nginx stands still."""
    env = {"SAGEMAKER_GUNICORN_WORKERS": "1", "SAGEMAKER_GUNICORN_THREADS": str(MANY)}
    with serving(*stand_in_words(tmp_path, SCRIPT), env=env, launcher=WITHOUT_CAPABILITIES) as stack:
        accepting = stack.children()["nginx"][1:]
        for pid in accepting:
            os.kill(pid, signal.SIGSTOP)
        links = [socket.create_connection((stack.host, stack.port), timeout=SECONDS) for _ in range(MANY)]
        for number, link in enumerate(links):
            link.sendall(post(f"sent{number}"))
        stack.process.send_signal(signal.SIGTERM)
        time.sleep(STANDSTILL_SECONDS)
        for pid in accepting:
            os.kill(pid, signal.SIGCONT)

        with ThreadPoolExecutor(MANY) as pool:
            answers = list(pool.map(last_answer, links, range(MANY)))
        lost = [answer for answer in answers if not answer.startswith(b"HTTP/1.1 200")]
        assert (lost, stack.wait()) == ([], 0)


def test_nohup_keeps_sighup_away(tmp_path: Path) -> None:
    """Who ignores the signal at the start goes on ignoring it."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with serving(*stand_in_words(tmp_path, SCRIPT)) as stack:
            os.kill(stack.process.pid, signal.SIGHUP)
            assert stack.invoke("still here", "text/plain").body == b"still here"
            stack.process.send_signal(signal.SIGTERM)
            assert stack.wait() == 0
            assert "SIGHUP" not in stack.log
    finally:
        signal.signal(signal.SIGHUP, before)
