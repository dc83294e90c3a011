"""The worker class for requests from nginx, without nginx in between: kept connections and odd requests."""

import socket
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing
from http.client import HTTPConnection
from pathlib import Path

import pytest

from support import gates
from support.archives import NEEDS_NGINX, stand_in_words
from support.running import ANSWER_SECONDS
from support.scraping import scrape
from support.stack import serving

pytestmark = NEEDS_NGINX
IDLE_SECONDS = 3.0
SCRIPT = f"""{gates.SCRIPT}
import os
def handler(data, context):
    body = data.read().decode()
    if body == "stream":
        return (piece for piece in ("a", "b")), "text/plain"
    if body.startswith("/"):
        hold(body)
    return f"{{body}} from {{os.getpid()}}", "text/plain"
"""


@pytest.fixture(scope="module")
def two_threads(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port behind nginx of one worker with two threads."""
    words = stand_in_words(tmp_path_factory.mktemp("two"), SCRIPT)
    with serving(*words, env={"SAGEMAKER_GUNICORN_THREADS": "2"}) as stack:
        yield stack.worker_port()


def connection(port: int) -> HTTPConnection:
    """A client that keeps its connection."""
    return HTTPConnection("127.0.0.1", port, timeout=ANSWER_SECONDS)


def ask(client: HTTPConnection, body: str | Iterator[bytes]) -> str:
    """POST it; the answer's text, the pid left out."""
    client.request("POST", "/invocations", body, {"Content-Type": "text/plain"})
    response = client.getresponse()
    text = response.read().decode()
    assert response.status == 200, text
    return text.partition(" from ")[0]


def request(body: bytes, *headers: bytes) -> bytes:
    """A request as bytes."""
    lines = (b"POST /invocations HTTP/1.1", b"Host: x", b"Content-Length: %d" % len(body), *headers)
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


def test_one_connection_takes_plain_and_odd_requests_in_turn(two_threads: int) -> None:
    """Chunks, which gunicorn's parser reads, between plain requests; none disturbs the next."""
    with closing(connection(two_threads)) as client:
        answers = [
            ask(client, body) for body in ("one", iter([b"tw", b"o"]), "three", "stream", "x" * 90_000)
        ]

    assert answers == ["one", "two", "three", "ab", "x" * 90_000]


@pytest.mark.parametrize("body", ["small", "x" * 200_000])
def test_an_answer_that_ends_its_connection_says_so(two_threads: int, body: str) -> None:
    """Whoever is refused before the body is read, and was told that the connection stays, would fail next."""
    with closing(connection(two_threads)) as client:
        client.request("POST", "/v2/models/nowhere/infer", body, {"Content-Type": "text/plain"})
        refused = client.getresponse()
        refused.read()

        assert (refused.status, refused.getheader("Connection")) == (404, "close")
        assert ask(client, "again") == "again"


def test_an_idle_worker_outlives_the_shortest_timeout(tmp_path: Path) -> None:
    """With nothing to do it wakes up rarely, but often enough for gunicorn, which would replace it."""
    env = {"SAGEMAKER_GUNICORN_TIMEOUT_SECONDS": "1"}
    with serving(*stand_in_words(tmp_path, SCRIPT), env=env) as stack:
        before = stack.workers()
        time.sleep(IDLE_SECONDS)

        assert stack.workers() == before
        assert stack.invoke("still", "text/plain").status == 200


def test_idle_connections_hold_no_thread(two_threads: int) -> None:
    """Ten kept connections and some that never say a word, two threads."""
    with ExitStack() as held:
        for _ in range(5):
            held.enter_context(socket.create_connection(("127.0.0.1", two_threads)))
        clients = [held.enter_context(closing(connection(two_threads))) for _ in range(10)]
        answers = [ask(client, "again") for _ in range(3) for client in clients]

    assert answers == ["again"] * 30


def test_kept_connections_are_shared_by_all_workers(tmp_path: Path) -> None:
    """Of sixteen for two workers none has more than ten: a new one goes to the worker that has fewer."""
    env = {"SAGEMAKER_GUNICORN_WORKERS": "2"}
    with serving(*stand_in_words(tmp_path, SCRIPT), env=env) as stack, ExitStack() as held:
        stack.wait_until(lambda: scrape(stack).total("tfs_proxy_workers") == 2, "both workers serve")
        port = stack.worker_port()
        clients = [held.enter_context(closing(connection(port))) for _ in range(16)]
        pids = Counter(map(pid_at, clients))

    assert max(pids.values()) <= 10


def pid_at(client: HTTPConnection) -> int:
    """The worker that answers on this connection."""
    client.request("POST", "/invocations", "who", {"Content-Type": "text/plain"})
    return int(client.getresponse().read().split()[-1])
