"""Streamed answers through the whole stack: piece by piece, broken off if the script fails."""

import http.client
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.archives import NEEDS_NGINX, stand_in_words, without_nginx
from support.stack import Stack, serving

FRONTS = [
    pytest.param({}, id="nginx", marks=NEEDS_NGINX),
    pytest.param(without_nginx(), id="gunicorn"),
    pytest.param({**without_nginx(), "SAGEMAKER_GUNICORN_WORKER_CLASS": "sync"}, id="sync"),
    pytest.param({"SAGEMAKER_GUNICORN_WORKER_CLASS": "gevent"}, id="gevent"),
]
SCRIPT = """
import asyncio
import os
import pathlib
import time

import tfs_proxy


def init(context):
    pathlib.Path(os.environ["MARKS"], "init").touch()


def close():
    pathlib.Path(os.environ["MARKS"], "close").touch()


def handler(data, context):
    mark = pathlib.Path(os.environ["MARKS"], data.read().decode())
    return tfs_proxy.Response(globals()[mark.name](mark), "text/plain", 200, {"X-Kind": "stream"})


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
    try:
        while True:
            yield "x" * 1000
            time.sleep(0.01)
    finally:
        mark.touch()
"""


@pytest.fixture(scope="module", params=FRONTS)
def stack(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, marks: Path
) -> Iterator[Stack]:
    """The stack with a script that streams."""
    folder = tmp_path_factory.mktemp("streaming")
    env = {"MARKS": str(marks), "SAGEMAKER_GUNICORN_WORKERS": "1", **request.param}
    for mark in marks.iterdir():
        mark.unlink()
    with serving(*stand_in_words(folder, SCRIPT), env=env) as running:
        assert (marks / "init").exists()
        yield running
        running.stop()
    assert (marks / "close").exists()


def request(stack: Stack, kind: str) -> http.client.HTTPConnection:
    connection = http.client.HTTPConnection(stack.host, stack.port, timeout=60)
    connection.request("POST", "/invocations", kind)
    return connection


@pytest.mark.parametrize("kind", ["waits", "waits_async"])
def test_the_first_piece_arrives_before_the_second_is_made(stack: Stack, marks: Path, kind: str) -> None:
    """The script makes its second piece only when the test has read the first."""
    connection = request(stack, kind)
    answer = connection.getresponse()

    assert answer.getheader("Transfer-Encoding") == "chunked"
    assert (answer.getheader("X-Kind"), answer.getheader("Content-Type")) == ("stream", "text/plain")
    assert answer.read1(100) == b"first"
    (marks / kind).touch()
    assert answer.read() == b"second"
    connection.close()


def test_an_error_midway_breaks_the_connection(stack: Stack) -> None:
    """What was made arrives, and the answer has no end: the last chunk is missing."""
    connection = request(stack, "fails")
    answer = connection.getresponse()

    with pytest.raises(http.client.IncompleteRead) as broken:
        answer.read()
    connection.close()
    assert broken.value.partial in {b"first", b"firstsecond"}
    sent = b"POST /invocations HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nfails"
    assert not stack.raw(sent).endswith(b"0\r\n\r\n")
    stack.wait_for_log("inference.py")


def test_the_generator_is_closed_if_the_client_leaves(stack: Stack, marks: Path) -> None:
    """Its ``finally`` runs soon after the client has gone."""
    connection = request(stack, "endless")
    assert connection.getresponse().read(1000) == b"x" * 1000
    connection.close()
    stack.wait_until((marks / "endless").exists, "the generator is closed")
    (marks / "waits").touch()
    assert stack.invoke("waits").status == 200
