"""Answers in parts, from the asyncio server to the client that reads them as they come, on real sockets."""

import asyncio
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import pytest

from tfs_proxy.tools.endpoint.container import HostedContainer
from tfs_proxy.values.errors import NotReached, UpstreamTimeout, UpstreamUnavailable
from tfs_proxy.wire.http_messages import HttpRequest, StreamedResponse
from tfs_proxy.wire.http_server import HttpServer, app_of

Outcome = TypeVar("Outcome")
THREADS = ThreadPoolExecutor(4)
PlannedParts = AsyncGenerator[bytes, None]


def ask(
    parts: Callable[[HttpRequest], PlannedParts],
    read: Callable[[StreamedResponse], Awaitable[Outcome]],
    seconds: float = 30.0,
) -> Outcome:
    """What ``read`` makes of the answer of a server that sends ``parts``."""

    async def respond(request: HttpRequest) -> StreamedResponse:
        return StreamedResponse(200, parts(request), {"X-Seen": request.headers["content-type"]})

    async def scenario(listener: socket.socket) -> Outcome:
        server = HttpServer(app_of(respond, 1000))
        await server.open([listener])
        try:
            port = listener.getsockname()[1]
            return await read(await request_stream(port, seconds))
        finally:
            await server.drain(0)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        return asyncio.run(scenario(listener))


async def request_stream(port: int, seconds: float) -> StreamedResponse:
    container = HostedContainer("the server", "127.0.0.1", port, THREADS)
    return await container.stream("/stream", b"hello", {"Content-Type": "text/plain"}, seconds)


async def whole(answer: StreamedResponse) -> bytes:
    return b"".join([part async for part in answer.parts])


def test_a_part_arrives_before_the_next_one_exists() -> None:
    arrived = asyncio.Event()

    async def parts(request: HttpRequest) -> PlannedParts:
        yield request.body
        await arrived.wait()
        yield b" again"

    async def read(answer: StreamedResponse) -> tuple[str | None, bytes, bytes]:
        first = await anext(answer.parts)
        arrived.set()
        return answer.header("x-seen"), first, await whole(answer)

    assert ask(parts, read) == ("text/plain", b"hello", b" again")


def test_an_answer_that_breaks_off_is_no_whole_one() -> None:
    async def parts(_: HttpRequest) -> PlannedParts:
        yield b"some"
        raise ValueError

    with pytest.raises(UpstreamUnavailable, match="the server"):
        ask(parts, whole)


def test_time_is_for_the_whole_answer() -> None:
    async def parts(_: HttpRequest) -> PlannedParts:
        yield b"some"
        await asyncio.Event().wait()

    with pytest.raises(UpstreamTimeout, match=r"within 0\.5 seconds"):
        ask(parts, whole, seconds=0.5)


def test_the_server_gives_up_an_answer_whose_client_has_gone() -> None:
    closed = asyncio.Event()

    async def parts(_: HttpRequest) -> PlannedParts:
        try:
            while True:
                yield b"x" * 65536
                await asyncio.sleep(0)
        finally:
            closed.set()

    async def read(answer: StreamedResponse) -> None:
        await anext(answer.parts)
        await answer.parts.aclose()
        async with asyncio.timeout(30):
            await closed.wait()

    ask(parts, read)
    assert closed.is_set()


def test_a_client_that_leaves_while_nothing_comes_is_noticed() -> None:
    closed = asyncio.Event()

    async def parts(_: HttpRequest) -> PlannedParts:
        try:
            yield b"some"
            await asyncio.Event().wait()
        finally:
            closed.set()

    async def read(answer: StreamedResponse) -> None:
        await anext(answer.parts)
        await answer.parts.aclose()
        async with asyncio.timeout(30):
            await closed.wait()

    ask(parts, read)
    assert closed.is_set()


def test_nothing_that_listens_is_not_reached() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(NotReached, match="the server can't be reached"):
        asyncio.run(request_stream(port, 5.0))
