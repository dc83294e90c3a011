"""The door's HTTP: every byte string gets an answer in JSON or silence, never an exception."""

import asyncio
import json
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfs_proxy.deployment import Deployment
from tfs_proxy.supervisor.control_api import ControlApi
from tfs_proxy.supervisor.readiness import Heartbeats, Phase, Readiness
from tfs_proxy.wire.http_server import Answer, Reply, serve_connection


class Writer:
    """Keeps what would go to the client."""

    def __init__(self) -> None:
        self.sent = b""
        self.closed = False

    def write(self, data: bytes) -> None:
        self.sent += data

    async def drain(self) -> None:
        pass

    def close(self) -> None:
        self.closed = True


async def say_hello(method: str, path: str) -> Reply:
    """An answer that shows the request."""
    return Reply(200, json.dumps([method, path.replace("HTTP", "")]).encode())


def talk(parts: Sequence[bytes], answer: Answer = say_hello) -> Writer:
    """Send these bytes on one connection, then end it; everything that came back."""

    async def scenario() -> Writer:
        reader, writer = asyncio.StreamReader(), Writer()
        for part in parts:
            reader.feed_data(part)
        reader.feed_eof()
        await serve_connection(answer, reader, writer)  # type: ignore[arg-type]
        return writer

    return asyncio.run(scenario())


def test_two_requests_share_a_connection() -> None:
    """Keep-alive, with a body in between that nobody asked for."""
    writer = talk(
        [
            b"POST /one?x=1 HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc",
            b"GET /two HTTP/1.1\r\nHost: a\r\n\r\n",
        ]
    )

    assert writer.sent.count(b"HTTP/1.1 200 OK") == 2
    assert b'["POST", "/one"]' in writer.sent
    assert b'["GET", "/two"]' in writer.sent
    assert writer.closed


def test_head_has_no_body() -> None:
    """Its length is told all the same (RFC 9110, 9.3.2)."""
    writer = talk([b"HEAD /one HTTP/1.1\r\nHost: a\r\n\r\n"])

    assert writer.sent.endswith(b"\r\n\r\n")
    assert b"Content-Length: 16" in writer.sent


def test_what_is_no_http_is_a_400_in_json() -> None:
    """And the connection ends."""
    writer = talk([b"nonsense\r\n\r\n"])

    head, _, body = writer.sent.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 Bad Request")
    assert b"Connection: close" in head
    assert json.loads(body) == {"error": "refused: bad request"}


@given(st.lists(st.binary(max_size=200), max_size=5))
def test_random_bytes_never_raise(parts: list[bytes]) -> None:
    """Whatever arrives, the connection is closed in the end."""
    assert talk(parts).closed


@given(
    st.sampled_from([b"GET", b"POST", b"G@T", b""]),
    st.text(alphabet="/%.?abc\x00 é", max_size=20),
    st.sampled_from([b"HTTP/1.1", b"HTTP/1.0", b"HTTP/2.0", b""]),
    st.lists(
        st.sampled_from([b"Host: a", b"Content-Length: 5", b"Transfer-Encoding: chunked", b": x"]), max_size=4
    ),
    st.binary(max_size=30),
)
def test_almost_requests_get_json_or_nothing(
    method: bytes, path: str, version: bytes, headers: list[bytes], body: bytes
) -> None:
    """Requests that are nearly right are answered whole, or not at all."""
    head = b" ".join([method, path.encode(), version])
    writer = talk([b"\r\n".join([head, *headers, b"", b""]) + body])

    if writer.sent:
        said = writer.sent.partition(b"\r\n\r\n")[2].partition(b"HTTP/1.1")[0]
        json.loads(said or b"null")


@pytest.fixture
def door() -> ControlApi:
    """A door of a run that is starting."""
    return ControlApi(Readiness(Heartbeats(10)))


def ask(door: ControlApi, method: str, path: str) -> Reply:
    """One question at the unix socket's side."""
    return asyncio.run(door.answer(method, path))


def test_the_door_answers_ping_from_health(door: ControlApi) -> None:
    """503 and the reason until all is ready, then 200 and nothing."""
    door.readiness.step = "starting: loading the models"
    assert ask(door, "GET", "/ping") == Reply.error(503, "starting: loading the models")

    door.readiness.phase = Phase.SERVING
    door.readiness.heartbeats.datagram_received(b"1", None)
    assert ask(door, "GET", "/ping") == Reply(200)


def test_the_door_hands_out_the_deployment_and_the_release(door: ControlApi) -> None:
    """Both are 503 before, so that a worker waits."""
    assert ask(door, "GET", "/deployment").status == ask(door, "GET", "/released").status == 503

    deployment = Deployment("m", {"m": (1,)}, (), None, (), 10, 5.0)
    door.deployment = deployment
    door.release()

    assert Deployment.from_json(ask(door, "GET", "/deployment").body) == deployment
    assert ask(door, "GET", "/released").status == 200


def test_the_door_knows_no_other_path_or_method(door: ControlApi) -> None:
    """404 and 405 in JSON."""
    assert ask(door, "GET", "/nope").status == 404
    assert ask(door, "POST", "/ping").status == 405


def test_clients_get_only_the_reason_before_workers_take_over(door: ControlApi) -> None:
    """Not the deployment, whatever the path; and the connection ends, for the workers to have the next."""
    reply = asyncio.run(door.answer_early("GET", "/deployment"))

    assert (reply.status, reply.close) == (503, True)
