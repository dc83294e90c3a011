"""Bodies that a script reads in parts: whole in any framing, in flat memory, with their limits."""

import gzip
import hashlib
import http.client
import json
import re
import socket
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest

from support.archives import NEEDS_NGINX, stand_in_words, without_nginx
from support.scraping import scrape
from support.stack import Stack, ended, serving
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


def handler(data, context):
    return globals()[context.request_content_type.partition("/")[2]](data, context)


def sums(data, context):
    digest, size = hashlib.sha256(), 0
    while piece := data.read(100_000):
        digest.update(piece)
        size += len(piece)
    return f"{size} {digest.hexdigest()}", "text/plain"


def echo(data, context):
    return (line.upper() for line in data), "text/plain"


def first(data, context):
    line = data.readline()
    pathlib.Path(os.environ["MARKS"], line.decode().strip()).touch()
    return line, "text/plain"


def swallows(data, context):
    try:
        return data.read(), "text/plain"
    except Exception as error:
        return f"swallowed {error}", "text/plain"


handler.streams = True
"""


@pytest.fixture(scope="module")
def marks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the script leaves files."""
    return tmp_path_factory.mktemp("marks")


@pytest.fixture(scope="module", params=FRONTS)
def stack(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, marks: Path
) -> Iterator[Stack]:
    """A stack whose script reads bodies in parts, of 2 MB at most."""
    env = {"MARKS": str(marks), "SAGEMAKER_MAX_PAYLOAD_IN_MB": "2", **request.param}
    with serving(*stand_in_words(tmp_path_factory.mktemp("parts"), SCRIPT), env=env) as running:
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


@pytest.mark.parametrize("encoding", ["identity", "gzip"])
@pytest.mark.parametrize("chunked", [False, True])
def test_bodies_are_read_whole_in_any_framing(stack: Stack, encoding: str, chunked: bool) -> None:
    """By length or in chunks, packed or not: the same bytes. The report of the start says how they are read."""
    assert "code/inference.py defines handler, and reads bodies in parts" in stack.log
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


def test_a_stream_may_be_made_of_a_body_that_is_not_read_yet(stack: Stack) -> None:
    """Its client reads only when it has sent everything."""
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
    """By chunks as well as unpacked, also if the script swallows the error of its read."""
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
    with begun(stack, "first", f"Content-Length: {3 * MEGABYTE}") as client:
        client.sendall(b"unseen\n")
        assert answer_of(client).status == 413
    assert not (marks / "unseen").exists()


def test_a_body_that_ends_early_is_no_whole_body(stack: Stack) -> None:
    """nginx passes none on; without it the script's read fails, and the log says after how many bytes."""
    with begun(stack, "sums", "Content-Length: 100") as client:
        client.sendall(b"early")
    if "nginx" not in stack.children():
        stack.wait_for_log("the body ended after 5 of 100 bytes, after 5 bytes")
    assert stack.invoke(b"whole", "text/sums").body.startswith(b"5 ")


@pytest.mark.slow
@pytest.mark.parametrize("front", FRONTS[:2])
def test_a_body_of_any_size_takes_no_memory(tmp_path: Path, front: dict[str, str]) -> None:
    """Neither if it is read before the answer, nor if the answer is made of it meanwhile."""
    line, count = b"x" * (MEGABYTE - 1) + b"\n", 200
    env = {"SAGEMAKER_MAX_PAYLOAD_IN_MB": "0", **front}
    with serving(*stand_in_words(tmp_path, SCRIPT), env=env) as stack:
        for kind in ("sums", "echo"):
            stack.invoke(b"warm", f"text/{kind}")
        before = resident_mb(stack)
        for kind in ("sums", "echo"):
            with begun(stack, kind, f"Content-Length: {count * MEGABYTE}") as client:
                for _ in range(count):
                    client.sendall(line)
                answer = answer_of(client)
                digest = hashlib.sha256()
                while part := answer.read(MEGABYTE):
                    digest.update(part)
                wanted = hashlib.sha256((line if kind == "sums" else line.upper()) * count).hexdigest()
                said = f"{count * MEGABYTE} {wanted}".encode()
                assert answer.status == 200
                assert digest.hexdigest() == (hashlib.sha256(said).hexdigest() if kind == "sums" else wanted)
        assert resident_mb(stack) - before < 20


@NEEDS_NGINX
def test_other_scripts_have_a_limit_in_any_case(tmp_path: Path) -> None:
    """That of 100 MB: they get whole bodies."""
    env = {"SAGEMAKER_MAX_PAYLOAD_IN_MB": "0"}
    with (
        serving(*stand_in_words(tmp_path, SCRIPT.replace(".streams", ".other")), env=env) as stack,
        begun(stack, "sums", f"Content-Length: {101 * MEGABYTE}") as client,
    ):
        assert answer_of(client).status == 413


def test_a_transform_job_of_payload_0_reaches_such_a_script(tmp_path: Path) -> None:
    """An object of any size in chunks, and the answer that a generator makes of it."""
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
def test_a_client_that_stalls_is_a_408(tmp_path: Path) -> None:
    """After the time of any stalled upload, without nginx too; it is counted, and the worker stays."""
    env = {"TFS_PROXY_REQUEST_TIMEOUT_SECONDS": "2.5", **without_nginx()}
    with serving(*stand_in_words(tmp_path, SCRIPT), env=env) as stack:
        workers = stack.workers()
        with begun(stack, "sums") as client:
            client.sendall(chunk(b"stalled"))
            began = time.monotonic()
            assert answer_of(client).status == 408
            assert 10 < time.monotonic() - began < 25
        assert scrape(stack).total(COUNT, http_response_status_code="408") == 1
        assert stack.workers() == workers


def test_an_async_handler_is_refused_at_the_start(tmp_path: Path) -> None:
    """Its reads would stop the event loop of all requests."""
    script = "async def handler(data, context):\n    return b''\n\n\nhandler.streams = True\n"
    status, log = ended(*stand_in_words(tmp_path, script))
    assert (status, "is an async def, and can't read bodies in parts" in log) == (3, True)
