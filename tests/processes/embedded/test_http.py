"""The embedded server's HTTP, byte by byte: what ordinary clients do not send."""

import json
import re
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from support.gates import gate
from support.model_fixtures import EmbeddedServer
from tfs_proxy.embedded.rest.server import RestConnection

pytestmark = pytest.mark.tensorflow

BODY = b'{"instances": [1.0]}'
POST = b"POST /v1/models/half_plus_two:predict HTTP/1.1\r\nHost: x\r\nContent-Length: 20\r\n"
GET = b"GET /v1/models/half_plus_two HTTP/1.1\r\nHost: x\r\n"
CLOSE = b"Connection: close\r\n"
LENGTH = re.compile(rb"\r\ncontent-length: *([0-9]+)", re.IGNORECASE)
IDLE_SECONDS = 1


def talk(server: EmbeddedServer, *sent: bytes) -> bytes:
    """Bytes on a bare connection, each part after the whole answer to the one before; all that came back."""
    got = b""
    with socket.create_connection(("127.0.0.1", server.rest_port), timeout=60) as connection:
        for part in sent[:-1]:
            connection.sendall(part)
            got += one_answer(connection)
        connection.sendall(sent[-1])
        while data := connection.recv(65536):
            got += data
    return got


def one_answer(connection: socket.socket) -> bytes:
    """The next answer, in however many pieces it comes; `100 Continue` is one, and has no body."""
    got = b""
    while not is_whole(got):
        data = connection.recv(65536)
        assert data, got
        got += data
    return got


def is_whole(answer: bytes) -> bool:
    """Whether the head is there, and as much of a body as it says."""
    head, end, body = answer.partition(b"\r\n\r\n")
    length = LENGTH.search(head)
    return bool(end) and len(body) >= (int(length[1]) if length else 0)


def test_a_head_without_a_body_is_sent(embedded_server: EmbeddedServer) -> None:
    answer = talk(embedded_server, GET.replace(b"GET", b"HEAD") + CLOSE + b"\r\n")
    assert answer.startswith(b"HTTP/1.1 400")
    assert answer.endswith(b"\r\n\r\n")


@pytest.mark.parametrize(("version", "statuses"), [("1.0", [b"200"]), ("1.1", [])])
def test_a_client_that_has_said_all_gets_its_answer(
    embedded_server: EmbeddedServer, tmp_path: Path, version: str, statuses: list[bytes]
) -> None:
    """It shuts its side of the connection behind its request, and reads on; one of HTTP/1.1 has gone, as for nginx."""
    with gate(tmp_path / "gate") as held:
        body = json.dumps({"instances": [held.mark()]}).encode()
        head = (
            f"POST /v1/models/gate:predict HTTP/{version}\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        with socket.create_connection(("127.0.0.1", embedded_server.rest_port), timeout=60) as connection:
            connection.sendall(head.encode() + body)
            held.wait_for()
            connection.shutdown(socket.SHUT_WR)
            time.sleep(0.1)
            held.open()
            answer = b"".join(iter(lambda: connection.recv(65536), b""))
    assert re.findall(rb"HTTP/1\.1 ([0-9]+)", answer) == statuses


UPGRADE = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n"


def test_offers_of_another_protocol_are_not_taken(embedded_server: EmbeddedServer) -> None:
    """Java's HttpClient offers HTTP/2 with a first request: it is answered over HTTP/1.1, body and all."""
    chunked = POST.replace(b"Content-Length: 20", b"Transfer-Encoding: chunked")
    answer = talk(
        embedded_server,
        POST + UPGRADE + b"\r\n" + BODY,
        POST + UPGRADE + b"Expect: 100-continue\r\n\r\n",
        BODY,
        chunked + UPGRADE + b"\r\n14\r\n" + BODY + b"\r\n0\r\n\r\n",
        GET + UPGRADE.replace(b"h2c", b"websocket") + b"\r\n",
        POST + CLOSE + b"\r\n" + BODY,
    )
    assert re.findall(rb"HTTP/1\.1 ([0-9]+)", answer) == [b"200", b"100", b"200", b"200", b"200", b"200"]
    assert answer.count(b"2.5") == 4


@pytest.mark.parametrize(
    "head", [POST + CLOSE, POST.replace(b"HTTP/1.1", b"HTTP/1.0"), POST + b"Connection: close, upgrade\r\n"]
)
def test_offers_with_a_last_request_are_answered(embedded_server: EmbeddedServer, head: bytes) -> None:
    answer = talk(embedded_server, head + UPGRADE + b"\r\n" + BODY)
    assert re.findall(rb"HTTP/1\.1 ([0-9]+)", answer) == [b"200"]
    assert b"2.5" in answer


@pytest.mark.parametrize(
    ("path", "status", "text"),
    [
        ("/v1/models/half_plus_two?x=1", 404, "Could not find any versions of model half_plus_two?x=1"),
        ("/v1/models/half_plus_two/versions/1?x", 400, "Malformed request: GET /v1/models/half_plus_two"),
        ("/v1/models/half_plus_two/metadata?x=1", 400, "Malformed request: GET /v1/models/half_plus_two"),
    ],
)
def test_a_query_is_part_of_the_path(
    embedded_server: EmbeddedServer, path: str, status: int, text: str
) -> None:
    """TF Serving takes all that follows the host for the path, and so do its patterns."""
    answer = talk(embedded_server, b"GET " + path.encode() + b" HTTP/1.1\r\nHost: x\r\n" + CLOSE + b"\r\n")
    assert answer.startswith(b"HTTP/1.1 %d" % status)
    assert text.encode() in answer


async def no_content(_scope: Any, receive: Any, send: Any) -> None:
    await receive()
    await send({"type": "http.response.start", "status": 204, "headers": []})
    await send({"type": "http.response.body"})


@contextmanager
def impatient_server() -> Iterator[tuple[str, int]]:
    """The address of a server that gives its clients a second; uvicorn counts that on its own timers."""
    config = uvicorn.Config(
        no_content,
        http=RestConnection,
        timeout_keep_alive=IDLE_SECONDS,
        lifespan="off",
        log_config=None,
        loop="uvloop",
    )
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
        thread.start()
        try:
            yield listener.getsockname()
        finally:
            server.should_exit = True
            thread.join(30)


SILENT = {b"": 0, GET: 0, POST + b"\r\n": 0, GET + b"\r\n" + GET: 1}
"""What clients have sent when they fall silent, and how many answers that is worth."""


@pytest.mark.parametrize("shuts", [False, True])
def test_clients_that_fall_silent_are_given_up(shuts: bool) -> None:
    """One that goes without a word, before a request or within it, does not hold its connection for ever."""
    with impatient_server() as address, ExitStack() as opened:
        clients = [opened.enter_context(silent_client(address, sent, shuts)) for sent in SILENT]
        received = [b"".join(iter(lambda: client.recv(65536), b"")) for client in clients]  # noqa: B023 - used at once
    assert [answers.count(b"HTTP/1.1 204") for answers in received] == list(SILENT.values())


def silent_client(address: tuple[str, int], sent: bytes, shuts: bool) -> socket.socket:
    """A connection on which this was sent, and its end if it ``shuts``."""
    connection = socket.create_connection(address, timeout=60)
    connection.sendall(sent)
    if shuts:
        connection.shutdown(socket.SHUT_WR)
    return connection
