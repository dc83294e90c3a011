"""Our doors on uvicorn, on real sockets: requests as clients send them, and answers that they can read."""

import asyncio
import json
import socket
from collections.abc import AsyncGenerator, Callable
from typing import Any

import pytest

from tfs_proxy.wire.http_messages import HttpRequest, HttpResponse, StreamedResponse
from tfs_proxy.wire.http_server import HttpServer, Respond, app_of

LIMIT = 1 << 20
OFFER = (
    b"POST /a?b=c HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"
    b"HTTP2-Settings: AAEAAEAAAAIAAAABAAMAAABkAAQBAAAAAAUAAEAA\r\nContent-Length: 5\r\n\r\nhello"
)
"""A request of Java's client."""


async def echo(request: HttpRequest) -> HttpResponse:
    """What it was asked, as JSON."""
    asked = {"path": request.path, "query": request.query, "body": request.body.decode()}
    return HttpResponse(200, json.dumps(asked).encode())


async def fail(_: HttpRequest) -> HttpResponse:
    """Fail as a fault of ours does."""
    raise KeyError("a fault of ours")


def talk(
    *parts: bytes, respond: Respond = echo, until: Callable[[bytes], bool] = lambda _read: False
) -> bytes:
    """What a server writes to a client that sends these parts, until the connection ends."""

    async def exchange(listener: socket.socket) -> bytes:
        server = HttpServer(app_of(respond, LIMIT))
        await server.listen([listener])
        reader, writer = await asyncio.open_connection(*listener.getsockname())
        answer = b""
        try:
            for part in parts:
                writer.write(part)
                await asyncio.sleep(0.01)
            async with asyncio.timeout(30):
                while not until(answer) and (more := await reader.read(65536)):
                    answer += more
        finally:
            writer.close()
            await server.drain(10)
        return answer

    with socket.create_server(("127.0.0.1", 0)) as listener:
        return asyncio.run(exchange(listener))


def closing(body: bytes, framing: bytes) -> bytes:
    """A request after which the server closes the connection."""
    return b"POST /a?b=c HTTP/1.1\r\nHost: x\r\nConnection: close\r\n" + framing + b"\r\n\r\n" + body


def parsed(answer: bytes) -> Any:
    """The body of the last answer."""
    return json.loads(answer.rpartition(b"\r\n\r\n")[2])


@pytest.mark.parametrize(
    "parts",
    [
        (closing(b"hello", b"Content-Length: 5"),),
        (closing(b"2\r\nhe\r\n", b"Transfer-Encoding: chunked"), b"3\r\nllo\r\n0\r\n\r\n"),
        (closing(b"", b"Content-Length: 5\r\nExpect: 100-continue"), b"hello"),
    ],
    ids=["length", "chunks", "waits for 100"],
)
def test_a_body_reaches_the_server_in_any_framing(parts: tuple[bytes, ...]) -> None:
    """Whole, beside path and query."""
    assert parsed(talk(*parts)) == {"path": "/a", "query": "b=c", "body": "hello"}


def test_an_offer_of_http_2_is_answered_over_http_1() -> None:
    """And the connection carries the next request."""
    answer = talk(OFFER, OFFER, until=lambda read: read.count(b"hello") == 2)

    assert answer.count(b"HTTP/1.1 200") == 2


@pytest.mark.parametrize(
    "sent",
    [
        (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1048577\r\n\r\n", b"x" * (LIMIT + 1)),
        (b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n100001\r\n" + b"x" * (LIMIT + 1),),
    ],
    ids=["length", "chunks"],
)
def test_a_body_over_the_limit_is_a_413_that_the_client_sees(sent: tuple[bytes, ...]) -> None:
    """In JSON, whether it is declared or only sent."""
    answer = talk(*sent, until=lambda read: read.endswith(b"}"))

    assert answer.startswith(b"HTTP/1.1 413")
    assert "SAGEMAKER_MAX_PAYLOAD_IN_MB" in parsed(answer)["error"]


def test_a_failure_of_ours_is_a_500_in_json(caplog: pytest.LogCaptureFixture) -> None:
    """What happened is in the log, not in the answer."""
    answer = talk(closing(b"", b"Content-Length: 0"), respond=fail)

    assert answer.startswith(b"HTTP/1.1 500")
    assert parsed(answer)["error"].startswith("internal error")
    assert "a fault of ours" in caplog.text


def test_what_is_no_http_is_a_400() -> None:
    """The connection is not just closed."""
    assert talk(b"no http\r\n\r\n").startswith(b"HTTP/1.1 400")


def test_draining_answers_what_is_in_flight() -> None:
    """And closes what is idle."""
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def wait(_: HttpRequest) -> HttpResponse:
        begun.set()
        await go_on.wait()
        return HttpResponse(200)

    async def scenario(listener: socket.socket) -> tuple[bytes, bytes]:
        server = HttpServer(app_of(wait))
        await server.listen([listener])
        idle, idle_writer = await asyncio.open_connection(*listener.getsockname())
        reader, writer = await asyncio.open_connection(*listener.getsockname())
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        await begun.wait()
        draining = asyncio.create_task(server.drain(30))
        ended = await idle.read()
        go_on.set()
        await draining
        answers = ended, await reader.read()
        writer.close()
        idle_writer.close()
        return answers

    with socket.create_server(("127.0.0.1", 0)) as listener:
        ended, answer = asyncio.run(scenario(listener))
    assert ended == b""
    assert answer.startswith(b"HTTP/1.1 200")


def test_a_stream_is_given_up_once_its_client_has_gone() -> None:
    """Whoever makes the parts learns of it."""
    given_up: list[bool] = []

    async def parts() -> AsyncGenerator[bytes, None]:
        try:
            yield b"one"
            await asyncio.sleep(60)
        finally:
            given_up.append(True)

    async def stream(_: HttpRequest) -> StreamedResponse:
        return StreamedResponse(200, parts())

    answer = talk(
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", respond=stream, until=lambda read: read.endswith(b"one\r\n")
    )

    assert b"3\r\none\r\n" in answer
    assert given_up == [True]
