"""The embedded server's quick way through HTTP against the general one, without sockets."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import uvicorn
from hypothesis import given, settings
from hypothesis import strategies as st
from uvicorn.server import ServerState

from support.rest_app import RestAppOnAModel
from tfs_proxy.embedded.rest import quick_connection
from tfs_proxy.embedded.rest.app import RestApp
from tfs_proxy.embedded.rest.http_protocol import RestConnection, bounded_connections
from tfs_proxy.embedded.rest.known_heads import KnownHeads, KnownPost
from tfs_proxy.embedded.rest.quick_connection import quick_connections

BODY = b'{"instances": [1.0, 2.5]}'
HEAD = b"POST /v1/models/m:predict HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n"
BODIES = [
    BODY,
    b'{"instances": [1.0]}',
    b'{"instances": []}',
    b"",
    b"no JSON",
    b"[" * 3000,
    b" " * 70_000 + BODY,
]
LINES = [
    b"Content-Type: application/json",
    b"Accept: */*",
    b"Connection: close",
    b"Connection: keep-alive",
    b"Expect: 100-continue",
    b"Content-Encoding: gzip",
    b"Upgrade: h2c",
    b"Connection: Upgrade\r\nUpgrade: h2c",
    b"x-long: " + b"a" * 5000,
    b"Content-Length: 3",
    b"no header",
]
TARGETS = [
    b"/v1/models/m:predict",
    b"/v1/models/m:predict?a=b",
    b"/v1/models/nothing:predict",
    b"/v1/x",
    b"/",
]


class Recorder(asyncio.Transport):
    """A transport that keeps what is written, and has no socket."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.is_closed = False

    def write(self, data: Any) -> None:
        assert not self.is_closed
        self.written += bytes(data)

    def write_eof(self) -> None:
        pass

    def close(self) -> None:
        self.is_closed = True

    def is_closing(self) -> bool:
        return self.is_closed

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


def connected(app: RestApp, connections: Callable[..., Any]) -> tuple[RestConnection, Recorder]:
    """A client's connection to the application."""
    config = uvicorn.Config(app, lifespan="off", ws="none", log_config=None, access_log=False)
    connection: RestConnection = connections(config=config, server_state=ServerState(), app_state={})
    transport = Recorder()
    connection.connection_made(transport)
    return connection, transport


async def said(app: RestApp, connections: Callable[..., Any], parts: Sequence[bytes]) -> tuple[bytes, bool]:
    """What comes back for these bytes, each part sent when that before is answered, and whether it is all."""
    connection, transport = connected(app, connections)
    for part in parts:
        if not transport.is_closing():
            connection.data_received(part)
        async with asyncio.timeout(60):
            while connection.is_owed and not transport.is_closing():  # noqa: ASYNC110 (nothing says when)
                await asyncio.sleep(0)
        for _ in range(5):
            await asyncio.sleep(0)
    written, is_closed = transport.written, transport.is_closed
    connection.connection_lost(None)
    for _ in range(5):
        await asyncio.sleep(0)
    return written, is_closed


@st.composite
def requests(draw: st.DrawFn) -> bytes:
    """A request, most of them plain predictions."""
    target = draw(st.sampled_from([TARGETS[0], *TARGETS]))
    lines = draw(st.lists(st.sampled_from(LINES), max_size=2))
    version = draw(st.sampled_from([b"HTTP/1.1", b"HTTP/1.1", b"HTTP/1.0"]))
    body = draw(st.sampled_from([BODY, *BODIES]))
    name = draw(st.sampled_from([b"Content-Length", b"content-length"]))
    wrong = draw(st.sampled_from([0, 0, 0, 0, 3, -1]))
    length = b"%b: %d" % (name, max(0, len(body) + wrong))
    method = draw(st.sampled_from([b"POST", b"POST", b"GET"]))
    return b"\r\n".join([method + b" " + target + b" " + version, b"Host: x", *lines, length, b"", body])


@st.composite
def conversations(draw: st.DrawFn) -> list[bytes]:
    """The parts that a client sends: whole requests, repeated, together or cut anywhere."""
    kinds = draw(st.lists(requests(), min_size=1, max_size=2))
    parts = []
    for request in draw(st.lists(st.sampled_from(kinds), min_size=2, max_size=6)):
        cut = draw(st.one_of(st.just(0), st.integers(0, min(len(request), 200))))
        parts += [piece for piece in (request[:cut], request[cut:]) if piece]
    if draw(st.booleans()):
        parts = [b"".join(parts[:2]), *parts[2:]]
    return parts


@pytest.fixture(scope="module")
def pool() -> Iterator[ThreadPoolExecutor]:
    """Threads for what is not quick."""
    with ThreadPoolExecutor(2) as made:
        yield made


@settings(max_examples=150, deadline=None)
@given(parts=conversations())
def test_the_quick_way_answers_as_the_general_one(pool: ThreadPoolExecutor, parts: list[bytes]) -> None:
    """Byte for byte, whatever is sent in whatever pieces."""

    async def both() -> tuple[tuple[bytes, bool], tuple[bytes, bool]]:
        app, other = RestAppOnAModel(pool, cors=True).app, RestAppOnAModel(pool, cors=True).app
        return (
            await said(app, quick_connections(app), parts),
            await said(other, bounded_connections(), parts),
        )

    quick, general = asyncio.run(both())
    assert quick == general


def test_a_known_head_needs_no_parser(pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch) -> None:
    """From its second request on a client's predictions are answered without one, on any connection."""
    request = HEAD % len(BODY) + BODY
    longer = HEAD % (len(BODY) + 1) + BODY + b" "

    async def run() -> tuple[bytes, bytes]:
        app = RestAppOnAModel(pool).app
        connections = quick_connections(app)
        first, _ = await said(app, connections, [request])
        monkeypatch.setattr(RestConnection, "data_received", lambda *_: pytest.fail("parsed"))
        return first, (await said(app, connections, [request, longer]))[0]

    first, more = asyncio.run(run())
    assert first.startswith(b"HTTP/1.1 200 OK")
    assert more == first * 2


@pytest.mark.parametrize("ends", [False, True])
def test_a_body_that_takes_its_time_goes_the_general_way(
    pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch, ends: bool
) -> None:
    """It is answered all the same, and one that breaks off gives back what it held."""
    monkeypatch.setattr(quick_connection, "AT_ONCE_SECONDS", 0.0)
    body = BODY + b" " * 2_000_000
    request = HEAD % len(body) + body
    server = RestAppOnAModel(pool)

    async def run() -> tuple[bytes, bytes]:
        connections = quick_connections(server.app)
        whole, _ = await said(server.app, connections, [request])
        parts = [request[:1000], request[1000:2000], *([] if ends else [request[2000:]])]
        return whole, (await said(server.app, connections, parts))[0]

    whole, in_parts = asyncio.run(run())
    assert whole.startswith(b"HTTP/1.1 200 OK")
    assert in_parts == (b"" if ends else whole)
    assert server.ledger.try_reserve(1 << 62)


@pytest.mark.parametrize(
    "line",
    [
        b"Transfer-Encoding: chunked",
        b"Expect: 100-continue",
        b"Content-Encoding: gzip",
        b"Connection: close",
        b"Content-Length: 3",
    ],
)
def test_heads_that_change_what_follows_are_not_kept(line: bytes) -> None:
    """Only the parser knows where such a request ends, and what is to be done with it."""
    heads = KnownHeads()
    data = HEAD.replace(b"Host: x", line) % 3 + b"abc"
    headers = [(line.lower().partition(b": ")[0], b""), (b"content-length", b"3")]
    heads.learn(data, b"/v1/models/m:predict", headers)
    assert heads.find(data) is None


def test_heads_differ_by_the_length_of_the_body_only() -> None:
    """Clients send bodies of many lengths behind one head."""
    heads = KnownHeads()
    heads.learn(HEAD % 3, b"/target", [(b"host", b"x"), (b"content-length", b"3")])
    data = HEAD % 12 + b"a" * 12
    assert heads.find(data) == KnownPost(b"/target", len(data) - 12, len(data))
    assert heads.find(data.replace(b"Host: x", b"Host: y")) is None


def test_heads_that_clients_make_up_fill_no_memory() -> None:
    """Of any number of different ones the latest are known."""
    heads = KnownHeads()
    for number in range(1000):
        head = HEAD.replace(b"Host: x", b"Host: %d" % number) % 3
        heads.learn(head, b"/target", [(b"host", b"%d" % number), (b"content-length", b"3")])
        assert heads.find(head) is not None
    known = [heads.find(HEAD.replace(b"Host: x", b"Host: %d" % number) % 3) for number in range(1000)]
    assert sum(request is not None for request in known) <= 256
