"""The end of a run: requests in flight finish, everything stops in order, nothing is left behind."""

import contextlib
import http.client
import os
import signal
import socket
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from support import gates
from support.archives import NEEDS_NGINX, stand_in_words
from support.load_generator import was_reset
from support.running import Answer
from support.stack import Stack, serving

SLOW = f"""{gates.SCRIPT}
def handler(data, context):
    hold(data.read().decode())
    return "let go", "text/plain"
"""
LONG = {"TFS_PROXY_STOP_SECONDS": "600"}
"""More than a test waits for anything: what ends sooner has not waited for it."""


STREAMED = f"""{gates.SCRIPT}
def handler(data, context):
    mark = data.read().decode()

    def parts():
        yield "first"
        hold(mark)
        yield "last"

    return parts(), "text/plain"
"""


@NEEDS_NGINX
def test_a_request_behind_an_answer_begun_before_the_stop_stays_unread(tmp_path: Path) -> None:
    """That answer has kept the connection: what follows is for the client to send again, so it must stay unread."""
    with serving(*stand_in_words(tmp_path, STREAMED), env=LONG) as stack:
        with (
            socket.create_connection((stack.host, stack.port), timeout=60) as link,
            gates.gate(tmp_path / "gate") as held,
        ):
            post = _post(held.mark())
            link.sendall(post)
            received = _until(link, b"first")
            stack.process.send_signal(signal.SIGTERM)
            stack.wait_until_refused()
            link.sendall(post)
            held.open()
            received += _until(link, b"\r\n0\r\n\r\n")

            assert b"connection: close" not in received.lower()
            assert b"last" in received
            assert _reset(link)
        assert stack.wait() == 0


def _post(body: str) -> bytes:
    """A request with that body."""
    return f"POST /invocations HTTP/1.1\r\nHost: a\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()


def _until(link: socket.socket, end: bytes) -> bytes:
    received = b""
    while end not in received and (part := link.recv(4096)):
        received += part
    return received


def _reset(link: socket.socket) -> bool:
    """Whether what this end has sent was never read: the kernel says so with a reset."""
    try:
        return link.recv(1) == b"" and was_reset(link)
    except ConnectionResetError:
        return True


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (signal.SIGINT, signal.SIGINT),
        pytest.param(signal.SIGHUP, signal.SIGINT, marks=pytest.mark.slow),
        (signal.SIGTERM, signal.SIGQUIT),
    ],
)
def test_who_presses_ctrl_c_while_it_stops_waits_no_longer(
    tmp_path: Path, first: signal.Signals, second: signal.Signals
) -> None:
    """SIGINT or SIGQUIT ends it at once, as asked for; the request is counted as cut off."""
    with (
        serving(*stand_in_words(tmp_path, SLOW), env=LONG) as stack,
        gates.gate(tmp_path / "gate") as held,
        ThreadPoolExecutor(1) as pool,
    ):
        slow = pool.submit(stack.invoke, held.mark(), "text/plain")
        held.wait_for()
        stack.process.send_signal(first)
        stack.wait_for_log(f"tfs-proxy: {first.name}: ")

        assert stack.stop(second) == 0
        assert was_cut_off(slow)
        assert stack.log.splitlines()[-1].endswith("requests in flight that were cut off: 1 (not waited for)")


def was_cut_off(request: Future[Answer]) -> bool:
    """Whether it has no answer of the script's."""
    return request.exception() is not None or request.result().status >= 500


@pytest.mark.parametrize("nginx", ["true", "false"])
def test_another_sigterm_changes_nothing(tmp_path: Path, nginx: str) -> None:
    """`docker stop` is typed twice, and `timeout` signals its command, then its process group."""
    with (
        serving(*stand_in_words(tmp_path, SLOW), env={**LONG, "TFS_PROXY_NGINX": nginx}) as stack,
        gates.gate(tmp_path / "gate") as held,
        ThreadPoolExecutor(1) as pool,
    ):
        slow = pool.submit(stack.invoke, held.mark(), "text/plain")
        held.wait_for()
        stack.process.send_signal(signal.SIGTERM)
        stack.wait_for_log("tfs-proxy: SIGTERM: ")
        for _ in range(3):
            stack.process.send_signal(signal.SIGTERM)
            time.sleep(0.2)
        held.open()
        assert (slow.result().status, stack.wait()) == (200, 0)
        assert stack.log.count("SIGTERM again changes nothing") == 1


@pytest.mark.parametrize("nginx", ["true", "false"])
def test_requests_that_the_time_was_too_short_for_are_counted(tmp_path: Path, nginx: str) -> None:
    """The log's last line says how many, without one of a worker that has died, and the exit status tells so."""
    env = {"TFS_PROXY_STOP_SECONDS": "0.7", "TFS_PROXY_NGINX": nginx, "SAGEMAKER_GUNICORN_THREADS": "4"}
    with (
        serving(*stand_in_words(tmp_path, SLOW), env=env) as stack,
        gates.gate(tmp_path / "gate") as held,
        contextlib.closing(http.client.HTTPConnection(stack.host, stack.port)) as idle,
        ThreadPoolExecutor(3) as pool,
    ):
        idle.request("GET", "/ping")
        assert idle.getresponse().read() == b""
        lost = pool.submit(stack.invoke, held.mark("lost"), "text/plain")
        held.wait_for()
        os.kill(stack.workers()[0], signal.SIGKILL)
        assert was_cut_off(lost)
        slow = [pool.submit(stack.invoke, held.mark(str(number)), "text/plain") for number in range(3)]
        held.wait_for(4)

        assert stack.stop() == 7
        assert all(map(was_cut_off, slow))
    last = stack.log.splitlines()[-1]
    assert last.endswith("requests in flight that were cut off: 3 (TFS_PROXY_STOP_SECONDS=0.7 was too short)")


def test_a_signal_during_start_up_ends_it(tmp_path: Path) -> None:
    """While a model loads for long, SIGTERM is obeyed at once."""
    with gates.gate(tmp_path / "gate") as held:
        env = {"STAND_IN_GATE": held.mark(), **LONG}
        with contextlib.closing(Stack(*stand_in_words(tmp_path), env=env)) as stack:
            stack.wait_for_log("stand-in model server is up")

            assert stack.stop() == 0
            assert list(stack.home.iterdir()) == []


SWALLOWS = """
import os, signal, sys

try:
    signal.raise_signal(signal.SIGTERM)
except BaseException:
    pass
sys.path.remove(os.path.dirname(__file__))
del sys.modules["h11"]
import h11
"""


def test_sigterm_ends_a_start_whose_imports_catch_everything(tmp_path: Path) -> None:
    """A bare except in some library must not lose the signal, which is sent once."""
    (tmp_path / "h11.py").write_text(SWALLOWS)
    env = {"PYTHONPATH": f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"}
    with contextlib.closing(Stack(*stand_in_words(tmp_path), env=env)) as stack:
        assert stack.wait() == 0
