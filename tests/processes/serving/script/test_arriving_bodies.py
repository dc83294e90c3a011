"""Bodies that a script reads while the client sends: in parts, with their limits, and answers that begin before them."""

import gzip
import hashlib
import http.client
import json
import os
import re
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest

from support.archives import NEEDS_NGINX, stand_in_words, without_nginx
from support.scraping import scrape
from support.stack import Stack, serving
from support.transform_command import outputs, transform

FRONTS = [
    pytest.param({}, id="nginx", marks=NEEDS_NGINX),
    pytest.param(without_nginx(), id="gunicorn"),
    pytest.param({"SAGEMAKER_GUNICORN_WORKER_CLASS": "gevent"}, id="gevent", marks=NEEDS_NGINX),
]
MEGABYTE = 1024 * 1024
COUNT = "http_server_request_duration_seconds_count"
SCRIPT = """
import hashlib
import os
import pathlib

import tfs_proxy


def handler(data, context):
    return globals()[context.request_content_type.partition("/")[2]](data, context)


def parts(data, context):
    first = data.readline()
    pathlib.Path(os.environ["MARKS"], first.decode().strip()).touch()
    return first + b"".join(data), "text/plain"


def sums(data, context):
    digest, size = hashlib.sha256(), 0
    while piece := data.read(100_000):
        digest.update(piece)
        size += len(piece)
    return f"{size} {digest.hexdigest()}", "text/plain"


def echo(data, context):
    return (line.upper() for line in data), "text/plain"


def first(data, context):
    return data.readline(), "text/plain"


def swallows(data, context):
    try:
        return data.read(), "text/plain"
    except Exception as error:
        return f"swallowed {error}", "text/plain"


handler.streams = True
"""


@pytest.fixture(scope="module")
def marks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the script shows that it has been called."""
    return tmp_path_factory.mktemp("marks")


@pytest.fixture(scope="module", params=FRONTS)
def stack(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, marks: Path
) -> Iterator[Stack]:
    """A stack whose script reads bodies as they arrive, of 2 MB at most."""
    env = {"MARKS": str(marks), "SAGEMAKER_MAX_PAYLOAD_IN_MB": "2", **request.param}
    with serving(*stand_in_words(tmp_path_factory.mktemp("arriving"), SCRIPT), env=env) as running:
        yield running


@contextmanager
def begun(stack: Stack, kind: str, *headers: str) -> Iterator[socket.socket]:
    """A client that has sent the head of a request, its body by chunks unless a header says its length."""
    framing = headers or ("Transfer-Encoding: chunked",)
    head = "\r\n".join(
        ["POST /invocations HTTP/1.1", "Host: x", f"Content-Type: text/{kind}", *framing, "\r\n"]
    )
    with closing(socket.create_connection((stack.host, stack.port), timeout=40)) as client:
        client.sendall(head.encode())
        yield client


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def answer_of(client: socket.socket) -> http.client.HTTPResponse:
    answer = http.client.HTTPResponse(client)
    answer.begin()
    return answer


def resident_mb(stack: Stack) -> int:
    """The most memory that any worker has had."""
    status = "".join(Path(f"/proc/{pid}/status").read_text() for pid in stack.workers())
    return max(int(size) // 1024 for size in re.findall(r"VmHWM:\s+(\d+)", status))


def until_there(path: Path) -> None:
    deadline = time.monotonic() + 20
    while not path.exists():
        assert time.monotonic() < deadline, path
        time.sleep(0.01)


@pytest.mark.parametrize("by_length", [False, True])
def test_the_script_reads_while_the_client_sends(stack: Stack, marks: Path, by_length: bool) -> None:
    """It has the first line before the second is sent; the report of the start says that it reads so."""
    assert "code/inference.py defines handler, and reads bodies as they arrive" in stack.log
    name = f"{stack.port}-{by_length}"
    line, rest = f"{name}\n".encode(), b"second\n"
    headers = (f"Content-Length: {len(line + rest)}",) if by_length else ()
    with begun(stack, "parts", *headers) as client:
        client.sendall(line if by_length else chunk(line))
        until_there(marks / name)
        client.sendall(rest if by_length else chunk(rest) + chunk(b""))
        answer = answer_of(client)
        assert (answer.status, answer.read()) == (200, line + rest)


@pytest.mark.parametrize("encoding", ["identity", "gzip"])
@pytest.mark.parametrize("chunked", [False, True])
def test_bodies_are_read_whole_in_any_framing(stack: Stack, encoding: str, chunked: bool) -> None:
    """By length or in chunks, packed or not: the same bytes."""
    body = b"".join(b"%d\n" % number for number in range(200_000))
    sent = gzip.compress(body) if encoding == "gzip" else body
    connection = http.client.HTTPConnection(stack.host, stack.port, timeout=60)
    pieces = iter([sent[:70_001], sent[70_001:]])
    connection.request(
        "POST",
        "/invocations",
        pieces if chunked else sent,
        {"Content-Type": "text/sums", "Content-Encoding": encoding},
        encode_chunked=chunked,
    )
    answer = connection.getresponse()
    assert (answer.status, answer.read().decode()) == (200, f"{len(body)} {hashlib.sha256(body).hexdigest()}")
    connection.close()


def test_an_answer_begins_before_the_body_ends(stack: Stack) -> None:
    """A client that waits for the answer to its first line gets it, and then sends the second."""
    with begun(stack, "echo") as client:
        client.sendall(chunk(b"one\n"))
        answer = answer_of(client)
        assert (answer.status, answer.readline()) == (200, b"ONE\n")
        client.sendall(chunk(b"two\n"))
        assert answer.readline() == b"TWO\n"
        client.sendall(chunk(b"three\nfour\n") + chunk(b""))
        assert answer.read() == b"THREE\nFOUR\n"


@NEEDS_NGINX
def test_a_client_may_be_ahead_of_an_answer_that_has_begun(tmp_path: Path) -> None:
    """What the script has not read yet waits in a file, so that nginx need not hold it back."""
    script = SCRIPT.replace("line.upper() for", "time.sleep(0.002) or line[:4].upper() for")
    env = {"SAGEMAKER_MAX_PAYLOAD_IN_MB": "0"}
    with (
        serving(*stand_in_words(tmp_path, f"import time\n{script}"), env=env) as stack,
        begun(stack, "echo") as client,
    ):
        client.sendall(chunk(b"one\n"))
        answer = answer_of(client)
        assert answer.read(3) == b"ONE"
        line = chunk(b"more" * 25_000 + b"\n")
        for _ in range(200):
            client.sendall(line)
            time.sleep(0.001)
        client.sendall(chunk(b""))
        assert answer.read() == b"\n" + b"MORE" * 200


def test_a_client_that_reads_only_at_the_end_gets_all(stack: Stack) -> None:
    """An answer as large as the body waits for it."""
    body = b"line\n" * (MEGABYTE // 5)
    reply = stack.invoke(body, "text/echo")
    assert (reply.status, reply.body) == (200, body.upper())


def test_the_rest_of_a_body_is_no_next_request(stack: Stack) -> None:
    """A script that does not read it all answers once, whatever the rest looks like."""
    inner = (
        b"POST /invocations HTTP/1.1\r\nHost: x\r\nContent-Type: text/first\r\nContent-Length: 4\r\n\r\nbad\n"
    )
    for framed in (chunk(b"good\n") + chunk(inner) + chunk(b""), b"5\r\ngood\n\r\n0\r\n\r\n"):
        with begun(stack, "first") as client:
            client.sendall(framed)
            received = b""
            client.settimeout(1.5)
            with suppress(TimeoutError):
                while part := client.recv(65536):
                    received += part
        assert received.count(b"HTTP/1.1 200") == 1
        assert (b"good\n" in received, b"bad\n" in received) == (True, False), received


@pytest.mark.parametrize("kind", ["sums", "swallows", "echo"])
def test_too_large_a_body_is_a_413(stack: Stack, kind: str) -> None:
    """By chunks it is found out while the script reads, which can't swallow it; so it is for what gzip unpacks to."""
    large = b"0123456789\n" * (3 * MEGABYTE // 11)
    for sent, *headers in (
        (b"".join(chunk(large[at : at + 65536]) for at in range(0, len(large), 65536)) + chunk(b""),),
        (gzip.compress(large), f"Content-Length: {len(gzip.compress(large))}", "Content-Encoding: gzip"),
    ):
        with begun(stack, kind, *headers) as client:
            with suppress(BrokenPipeError, ConnectionResetError):
                client.sendall(sent)
            answer = answer_of(client)
            assert (answer.status, list(json.loads(answer.read()))) == (413, ["error"])


def test_a_length_above_the_limit_does_not_reach_the_script(stack: Stack, marks: Path) -> None:
    """It is refused by its head."""
    with begun(stack, "parts", f"Content-Length: {3 * MEGABYTE}") as client:
        client.sendall(b"unseen\n")
        assert answer_of(client).status == 413
    assert not (marks / "unseen").exists()


def test_a_body_that_ends_early_is_no_whole_body(stack: Stack, marks: Path) -> None:
    """The script's read fails, and the log says after how many bytes."""
    line = f"{stack.port}-early\n".encode()
    with begun(stack, "parts", "Content-Length: 100") as client:
        client.sendall(line)
        until_there(marks / line.decode().strip())
    stack.wait_for_log(f"the body ended after {len(line)} of 100 bytes")


@pytest.mark.slow
@NEEDS_NGINX
def test_zero_is_no_limit_and_nothing_waits(tmp_path: Path) -> None:
    """No file on nginx's disk, no memory of a worker; a script that says nothing keeps the limit of 100 MB."""
    body = b"x" * (200 * MEGABYTE)
    env = {"SAGEMAKER_MAX_PAYLOAD_IN_MB": "0"}
    with serving(*stand_in_words(tmp_path, SCRIPT), env=env) as stack:
        sizes = []
        stack.invoke(b"warm", "text/sums")
        before = resident_mb(stack)
        with begun(stack, "sums", f"Content-Length: {len(body)}") as client:
            for at in range(0, len(body), 10 * MEGABYTE):
                client.sendall(body[at : at + 10 * MEGABYTE])
                sizes += [path.stat().st_size for path in stack.home.rglob("nginx/*/*") if path.is_file()]
            answer = answer_of(client)
            assert (answer.status, answer.read().split()[0]) == (200, b"%d" % len(body))
        assert resident_mb(stack) - before < 20
    assert sizes == []
    folder = tmp_path / "whole"
    folder.mkdir()
    with serving(*stand_in_words(folder, SCRIPT.replace(".streams", ".other")), env=env) as stack:
        assert stack.invoke(body, "text/sums").status == 413


@NEEDS_NGINX
def test_a_request_whose_worker_dies_is_not_sent_again(tmp_path: Path, marks: Path) -> None:
    """502: what the dead worker has read is gone; the next request is answered."""
    env = {"MARKS": str(marks), "TFS_PROXY_UNBUFFERED_BODIES": "true"}
    with serving(*stand_in_words(tmp_path, SCRIPT.replace("handler.streams = True", "")), env=env) as stack:
        with begun(stack, "parts") as client:
            client.sendall(chunk(b"killed\n"))
            until_there(marks / "killed")
            for pid in stack.workers():
                os.kill(pid, signal.SIGKILL)
            answer = answer_of(client)
            assert (answer.status, list(json.loads(answer.read()))) == (502, ["error"])
        assert stack.invoke(b"alive\n", "text/first").body == b"alive\n"


def test_a_transform_job_of_payload_0_reaches_such_a_script(tmp_path: Path) -> None:
    """An object of any size in chunks, and the answer that a generator makes meanwhile."""
    body = b"line\n" * (3 * MEGABYTE // 5)
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a").write_bytes(body)
    archive, *words = stand_in_words(tmp_path, SCRIPT)
    where = ("--input", str(tmp_path / "in"), "--output", str(tmp_path / "out"))
    done = transform(
        *("--model", archive, *words, *where),
        *("--max-payload-mb", "0", "--max-concurrent", "1", "--content-type", "text/echo"),
    )
    assert done.status == 0, done.log
    assert outputs(tmp_path / "out") == {"a.out": body.upper()}


@pytest.mark.slow
@pytest.mark.parametrize("front", FRONTS[:2])
def test_a_client_that_stalls_is_a_408(tmp_path: Path, marks: Path, front: dict[str, str]) -> None:
    """After the time of any stalled upload; it is counted, and the worker stays."""
    env = {"MARKS": str(marks), "TFS_PROXY_SCRIPT_TIMEOUT_SECONDS": "5", **front}
    with serving(*stand_in_words(tmp_path, SCRIPT), env=env) as stack:
        workers = stack.workers()
        with begun(stack, "sums") as client:
            client.sendall(chunk(b"stalled"))
            began = time.monotonic()
            received = client.recv(65536)
            assert 10 < time.monotonic() - began < 25
        assert re.match(rb"HTTP/1.1 408 |$", received)
        assert scrape(stack).total(COUNT, http_response_status_code="408") == 1
        assert stack.workers() == workers


def test_an_attribute_that_is_set_at_run_time_alone_is_named(tmp_path: Path) -> None:
    """The start reads the script's text: the log says which setting helps."""
    script = SCRIPT.replace("handler.streams = True", 'setattr(handler, "streams", True)')
    with serving(*stand_in_words(tmp_path, script)) as stack:
        stack.wait_for_log("set TFS_PROXY_UNBUFFERED_BODIES=true")


def test_an_async_handler_is_refused_at_the_start(tmp_path: Path) -> None:
    """Its reads would stop the event loop of all requests."""
    script = "async def handler(data, context):\n    return b''\n\n\nhandler.streams = True\n"
    stack = Stack(*stand_in_words(tmp_path, script))
    assert stack.wait() == 3
    assert "is an async def, and can't read bodies as they arrive" in stack.log
    stack.close()
