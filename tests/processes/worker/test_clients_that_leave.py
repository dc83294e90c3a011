"""Streams, and clients that do not wait: what is made for nobody is not begun, or ends, in all classes of workers."""

import http.client
import re
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from support import gates
from support.archives import NEEDS_NGINX, stand_in_words, without_nginx
from support.scraping import counted
from support.stack import Stack, serving

HEARD_SECONDS = 0.3
"""Time in which a worker can know that a client has left, through nginx, too."""

SCRIPT = f"""{gates.SCRIPT}
import asyncio
import os

import tfs_proxy

def init(context):
    pathlib.Path(os.environ["MARKS"], "init").touch()

def close():
    pathlib.Path(os.environ["MARKS"], "close").touch()

def input_handler(data, context):
    kind, _, path = data.read().decode().partition(" ")
    mark = pathlib.Path(path)
    if kind == "coroutine":
        return waits_for_ever(mark)
    if kind == "asks":
        began(mark)
        while not context.is_disconnected():
            time.sleep(0.01)
        mark.touch()
    if kind == "held":
        hold(path)
    context.set_custom_attributes({{"kind": kind, "path": path}})
    return '{{"instances": [1.0]}}'

def began(mark):
    mark.with_name(mark.name + " began").touch()

async def waits_for_ever(mark):
    began(mark)
    try:
        await asyncio.sleep(3600)
    finally:
        mark.touch()

def output_handler(response, context):
    kind, path = (pair.partition("=")[2] for pair in context.reply_attributes.split(","))
    if kind not in STREAMS:
        return "done", "text/plain"
    return tfs_proxy.Response(STREAMS[kind](pathlib.Path(path)), "text/plain", 200, {{"X-Kind": "stream"}})

def waits(mark):
    yield "first"
    while not mark.exists():
        time.sleep(0.01)
    yield "second"

async def waits_async(mark):
    yield "first"
    while not mark.exists():
        await asyncio.sleep(0.01)
    yield "second"

def fails(mark):
    yield "first"
    yield "second"
    raise ValueError("midway")

def endless(mark):
    began(mark)
    try:
        while True:
            yield "x" * 1000
            time.sleep(0.01)
    finally:
        mark.touch()

async def stream(mark):
    yield "first"
    await waits_for_ever(mark)

STREAMS = {{each.__name__: each for each in (waits, waits_async, fails, endless, stream)}}
"""


@pytest.fixture(
    scope="module", params=[pytest.param("nginx", marks=NEEDS_NGINX), "gthread", "sync", "gevent"]
)
def front(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def stack(front: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """One worker with one thread, behind nginx or of a class without it."""
    folder = tmp_path_factory.mktemp("leave")
    classes = {} if front == "nginx" else {**without_nginx(), "SAGEMAKER_GUNICORN_WORKER_CLASS": front}
    env = {"SAGEMAKER_GUNICORN_THREADS": "1", "SAGEMAKER_GUNICORN_LOG_LEVEL": "info", **classes}
    with serving(*stand_in_words(folder, SCRIPT), env={**env, "MARKS": str(folder)}) as running:
        assert (folder / "init").exists()
        yield running
        running.stop()
    assert (folder / "close").exists()


def post(stack: Stack, body: str, version: str = "1.1") -> socket.socket:
    """Send a request, and wait for nothing."""
    link = socket.create_connection((stack.host, stack.port), timeout=30)
    head = f"POST /invocations HTTP/{version}\r\nHost: a\r\nContent-Length: {len(body)}\r\n\r\n"
    link.sendall((head + body).encode())
    return link


def leave(link: socket.socket) -> None:
    link.close()
    time.sleep(HEARD_SECONDS)


def counts(stack: Stack) -> tuple[float, float]:
    """Requests so far that were answered, and those whose client did not wait."""
    return counted(stack)["/invocations", "POST", "200"], counted(stack)["/invocations", "POST", "499"]


def test_a_request_of_a_client_that_has_gone_is_dropped(stack: Stack, front: str, tmp_path: Path) -> None:
    """One that waits is not begun, one under way is not sent on; the next is answered, each is counted once."""
    answered, gone = counts(stack)
    with gates.gate(tmp_path / "gate") as gate:
        first = post(stack, f"held {gate.mark('first')}")
        gate.wait_for()
        waiting = [post(stack, f"held {gate.mark(str(number))}") for number in range(3)]
        leave(first)
        for link in waiting:
            leave(link)
        before = stack.log
        gate.open()
        assert stack.invoke("next").body == b"done"
        stack.wait_until(lambda: counts(stack) == (answered + 1, gone + 4), "each is counted once")
        stages = re.findall(
            r"\] the client has gone: dropped in the stage ([a-z_]+), after", stack.log[len(before) :]
        )
        # gevent begins all at once, and each of them waits within the script.
        others = "model_server" if front == "gevent" else "wait"
        assert sorted(stages) == sorted(["model_server", others, others, others])


def answer_of(link: socket.socket) -> http.client.HTTPResponse:
    answer = http.client.HTTPResponse(link)
    answer.begin()
    return answer


@pytest.mark.parametrize("kind", ["waits", "waits_async"])
def test_the_first_piece_arrives_before_the_second_is_made(stack: Stack, tmp_path: Path, kind: str) -> None:
    """The script makes its second piece only when the test has read the first."""
    with post(stack, f"{kind} {tmp_path / kind}") as link:
        answer = answer_of(link)
        assert answer.getheader("Transfer-Encoding") == "chunked"
        assert (answer.getheader("X-Kind"), answer.getheader("Content-Type")) == ("stream", "text/plain")
        assert answer.read1(100) == b"first"
        (tmp_path / kind).touch()
        assert answer.read() == b"second"


def test_an_error_midway_breaks_the_connection(stack: Stack) -> None:
    """What was made arrives, and the answer has no end: the last chunk is missing."""
    with post(stack, "fails") as link, pytest.raises(http.client.IncompleteRead) as broken:
        answer_of(link).read()
    assert broken.value.partial in {b"first", b"firstsecond"}
    sent = b"POST /invocations HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nfails"
    assert not stack.raw(sent).endswith(b"0\r\n\r\n")
    stack.wait_for_log("inference.py")


@pytest.mark.parametrize("kind", ["coroutine", "stream", "endless", "asks"])
def test_what_waits_for_nobody_ends(stack: Stack, tmp_path: Path, kind: str) -> None:
    """A coroutine is cancelled, a generator closed; a handler can ask."""
    link = post(stack, f"{kind} {tmp_path / kind}")
    stack.wait_until((tmp_path / f"{kind} began").exists, "it has begun")
    assert not (tmp_path / kind).exists()
    leave(link)
    stack.wait_until((tmp_path / kind).exists, "it has ended")


@pytest.mark.parametrize(("version", "waits"), [("1.0", True), ("1.1", False)])
def test_only_a_client_of_http_1_0_may_end_its_side(
    stack: Stack, front: str, tmp_path: Path, version: str, waits: bool
) -> None:
    """It is answered, but not by nginx; others have gone, and are told so if they can still hear it."""
    with gates.gate(tmp_path / "gate") as gate, post(stack, f"held {gate.mark()}", version) as link:
        gate.wait_for()
        link.shutdown(socket.SHUT_WR)
        time.sleep(HEARD_SECONDS)
        gate.open()
        status = link.recv(1000)[9:12]
    assert status == ((b"200" if waits else b"499") if front != "nginx" else b"")
