"""The HTTP server: every byte string gets an answer in JSON or silence, never an exception."""

import asyncio
import json
import re
import socket
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tfs_proxy.deployment import Deployment
from tfs_proxy.observe.metric import MeasuredMetric
from tfs_proxy.supervisor import control_api
from tfs_proxy.supervisor.control_api import ControlApi
from tfs_proxy.supervisor.health.heartbeats import Heartbeats
from tfs_proxy.supervisor.health.readiness import Phase, Readiness
from tfs_proxy.supervisor.request_counter import NGINX_COUNT
from tfs_proxy.wire.http_messages import HttpRequest, HttpResponse
from tfs_proxy.wire.http_server import HttpServer
from tfs_proxy.wire.server.connection import RequestLimits, Respond

NO_BODIES = RequestLimits()


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


async def say_hello(request: HttpRequest) -> HttpResponse:
    """An answer that shows the request."""
    shown = [request.method, request.path.replace("HTTP", "")]
    if request.body:
        shown.append(request.body.decode("latin-1"))
    return HttpResponse(200, json.dumps(shown).encode())


def talk(parts: Sequence[bytes], respond: Respond = say_hello, limits: RequestLimits = NO_BODIES) -> Writer:
    """Send these bytes on one connection, then end it; everything that came back."""

    async def scenario() -> Writer:
        reader, writer = asyncio.StreamReader(), Writer()
        for part in parts:
            reader.feed_data(part)
        reader.feed_eof()
        server = HttpServer(respond, limits)
        await server.serve_connection(reader, writer)  # type: ignore[arg-type]
        return writer

    return asyncio.run(scenario())


def test_a_query_is_kept_apart_from_the_path() -> None:
    """Whoever answers gets it as the client wrote it."""

    async def say_target(request: HttpRequest) -> HttpResponse:
        return HttpResponse(200, json.dumps([request.path, request.query]).encode())

    request = b"GET /models?next_page_token=YQ&x=?%20 HTTP/1.1\r\nHost: h\r\n\r\n"

    assert b'["/models", "next_page_token=YQ&x=?%20"]' in talk([request], say_target).sent


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


LIMITED = RequestLimits(body_bytes=2 * 1024 * 1024)


def test_a_body_reaches_the_server_in_any_framing() -> None:
    """With a Content-Length and in chunks; the client that waits for 100 is told to go on."""
    writer = talk(
        [
            b"POST /one HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n",
            b"abc",
            b"POST /two HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nde\r\n0\r\n\r\n",
        ],
        limits=LIMITED,
    )

    assert b'["POST", "/one", "abc"]' in writer.sent
    assert b'["POST", "/two", "de"]' in writer.sent


@pytest.mark.parametrize(
    "framing",
    [
        b"Content-Length: 3000000\r\n\r\n" + b"x" * 3_000_000,
        b"Content-Length: 3000000\r\nExpect: 100-continue\r\n\r\n",
        b"Transfer-Encoding: chunked\r\n\r\n2dc6c0\r\n" + b"x" * 3_000_000 + b"\r\n0\r\n\r\n",
    ],
)
def test_a_body_over_the_limit_is_a_413(framing: bytes) -> None:
    """The answer names the limit and its setting, and the connection ends."""
    writer = talk([b"POST /one HTTP/1.1\r\nHost: a\r\n" + framing], limits=LIMITED)

    head, _, body = writer.sent.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 413")
    assert b"Connection: close" in head
    assert "larger than 2 MB, the limit that SAGEMAKER_MAX_PAYLOAD_IN_MB sets" in json.loads(body)["error"]


def test_a_server_without_bodies_does_not_wait_for_one_that_waits_itself() -> None:
    """A client that expects 100-continue gets its answer at once: no body is needed for it."""
    writer = talk([b"POST /one HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n"])

    assert writer.sent.startswith(b"HTTP/1.1 200 OK")
    assert b"Connection: close" in writer.sent


def test_a_failure_of_ours_is_a_500_in_json(caplog: pytest.LogCaptureFixture) -> None:
    """The log has what happened, the client that it is there."""

    async def fail(_: HttpRequest) -> HttpResponse:
        raise ValueError("out of order")

    writer = talk([b"GET /one HTTP/1.1\r\nHost: a\r\n\r\n"], fail)

    assert writer.sent.startswith(b"HTTP/1.1 500")
    assert b"internal error" in writer.sent
    assert "out of order" in caplog.text


def test_draining_answers_what_is_in_flight() -> None:
    """A request that is under way gets its answer, and a connection that is idle ends."""

    async def scenario() -> tuple[bytes, bytes]:
        reached, go_on = asyncio.Event(), asyncio.Event()

        async def slow(_: HttpRequest) -> HttpResponse:
            reached.set()
            await go_on.wait()
            return HttpResponse(200, b"{}")

        server = HttpServer(slow)
        with socket.create_server(("127.0.0.1", 0)) as listener:
            await server.open(listener)
            address = listener.getsockname()
            idle, idle_writer = await asyncio.open_connection(*address)
            busy, busy_writer = await asyncio.open_connection(*address)
            busy_writer.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            await reached.wait()
            draining = asyncio.create_task(server.drain(60))
            nothing = await idle.read()
            go_on.set()
            answered = await busy.read()
            await draining
            idle_writer.close()
            busy_writer.close()
            return nothing, answered

    nothing, answered = asyncio.run(scenario())

    assert nothing == b""
    assert answered.startswith(b"HTTP/1.1 200 OK")


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

    answer_head, _, rest = writer.sent.partition(b"\r\n\r\n")
    answer = rest.partition(b"HTTP/1.1")[0]
    assert not writer.sent or answer_head.startswith(b"HTTP/1.1 ")
    assert not answer or json.loads(answer)


@pytest.fixture
def door() -> ControlApi:
    """A door of a run that is starting."""
    return ControlApi(Readiness(Heartbeats(10)))


def ask(door: ControlApi, method: str, path: str) -> HttpResponse:
    """One question at the unix socket's side."""
    return asyncio.run(door.respond(HttpRequest(method, path)))


def test_the_door_answers_ping_from_health(door: ControlApi) -> None:
    """503 and the reason until all is ready, then 200 and nothing."""
    door.readiness.step = "starting: loading the models"
    assert ask(door, "GET", "/ping") == HttpResponse.error(503, "starting: loading the models")

    door.readiness.phase = Phase.SERVING
    door.readiness.heartbeats.datagram_received(b"1", None)
    assert ask(door, "GET", "/ping") == HttpResponse(200)


def test_who_comes_before_the_workers_gets_an_id(door: ControlApi) -> None:
    """The one by which the request is logged."""
    noted: list[tuple[int, str]] = []
    door.count_early = lambda request, request_id: noted.append((request.status, request_id))
    for headers in ({"x-request-id": "mine"}, {"x-request-id": "a b"}):
        answer = asyncio.run(door.respond_early(HttpRequest("POST", "/invocations", headers)))
        assert (answer.status, answer.header("X-Request-Id")) == noted[-1]
    assert noted[0] == (503, "mine")


@pytest.mark.parametrize("count", ["7", "7" * 5000])
def test_no_client_says_how_many_requests_there_are(count: str) -> None:
    """Only nginx may, whose scrapes come another way."""
    scrapes: list[Mapping[str, str]] = []

    def measure(headers: Mapping[str, str]) -> list[MeasuredMetric]:
        scrapes.append(headers)
        return []

    door = ControlApi(Readiness(Heartbeats(10)), measure)
    asyncio.run(door.respond_early(HttpRequest("GET", "/metrics", {NGINX_COUNT: count, "accept": "*/*"})))

    assert scrapes == [{"accept": "*/*"}]


def test_the_door_hands_out_the_deployment_and_the_release(door: ControlApi) -> None:
    """Both are 503 before, so that a worker waits."""
    assert ask(door, "GET", "/deployment").status == ask(door, "GET", "/released/7").status == 503

    deployment = Deployment("m", {"m": (1,)}, (), None, (), 10, 5.0)
    door.deployment = deployment
    door.release()

    assert Deployment.from_json(ask(door, "GET", "/deployment").body) == deployment
    assert ask(door, "GET", "/released/7").status == 200


def test_a_worker_that_waits_hears_of_the_release_at_once(
    door: ControlApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Requests that come right after it wait for no poll; a worker gets an answer now and then before."""
    question = HttpRequest("GET", "/until-released/7")

    async def wait_twice() -> tuple[int, int]:
        monkeypatch.setattr(control_api, "HOLD_SECONDS", 0.01)
        in_vain = await door.respond(question)
        monkeypatch.setattr(control_api, "HOLD_SECONDS", 60)
        asking = asyncio.create_task(door.respond(question))
        await asyncio.sleep(0.01)
        assert not asking.done()
        door.release()
        return in_vain.status, (await asking).status

    assert asyncio.run(wait_twice()) == (503, 200)


def test_the_door_releases_the_workers_that_serve_alone(door: ControlApi) -> None:
    """Workers of another process group wait, although the run serves."""
    door.serves = lambda group: group == "7"
    door.release()

    assert ask(door, "GET", "/released/7").status == 200
    assert ask(door, "GET", "/released/8").status == 503


def test_the_door_knows_no_other_path_or_method(door: ControlApi) -> None:
    """404 and 405 in JSON."""
    assert ask(door, "GET", "/nope").status == 404
    assert ask(door, "POST", "/ping").status == 405


def test_clients_get_only_the_reason_before_workers_take_over(door: ControlApi) -> None:
    """Not the deployment, whatever the path; and the connection ends, for the workers to have the next."""
    response = asyncio.run(door.respond_early(HttpRequest("GET", "/deployment")))

    assert (response.status, response.keeps_connection) == (503, False)


@pytest.mark.parametrize(
    "head",
    [
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nX: 1\r\n 2\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nX: 1\r\n\t2\r\n\r\n",
        b"GET / HTTP/1.1\nHost: a\n\n",
        b"GET / HTTP/1.1\r\nHost: a\nX: 1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nX: 1\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nOnce: 1\r\nonce: 1\r\n\r\n",
    ],
    ids=[
        "two lengths",
        "fold",
        "fold by tab",
        "bare LF",
        "one bare LF",
        "bare LF at the end",
        "no Host",
        "twice",
    ],
)
@pytest.mark.parametrize("size", [1, 1000])
def test_what_two_servers_could_read_differently_is_refused(head: bytes, size: int) -> None:
    """One 400, and the connection is closed, however the bytes come and whatever came before."""
    before = b"GET /before HTTP/1.1\r\nHost: a\r\n\r\n"
    parts = [(before + head)[at : at + size] for at in range(0, len(before + head), size)]

    sent = talk(parts, limits=RequestLimits(1000, only_once=frozenset({"once"}))).sent

    assert re.findall(rb"HTTP/1.1 (\d+)", sent) == [b"200", b"400"]
    assert b"connection: close" in sent.lower()


def test_a_body_may_have_any_line_ends() -> None:
    """Only heads are looked at."""
    head = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 6\r\n\r\n"
    sent = talk([head + b"a\n b\n\n"], limits=RequestLimits(1000)).sent

    assert sent.startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize(
    ("sent", "seen"),
    [
        (
            b"POST /a?x=1 HTTP/1.1\r\nHost: a\r\nContent-Length: 2000\r\n\r\n" + b"x" * 2000,
            ("POST", "/a", 413),
        ),
        (b"POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nhalf", ("POST", "/a", 400)),
        (b"no HTTP at all\r\n\r\n", ("-", "-", 400)),
        (b"GET /a HTTP/1.1\r\nHost: a\r\n\r\n", None),
        (b"", None),
    ],
    ids=["too large", "broken off", "no HTTP", "answered", "nothing sent"],
)
def test_a_request_that_is_refused_here_is_shown_once(sent: bytes, seen: tuple[str, str, int] | None) -> None:
    """With the answer, which may get headers; what others answer is theirs to count."""
    refusals = []

    def refused(request: HttpRequest, response: HttpResponse) -> HttpResponse:
        refusals.append((request.method, request.path, response.status))
        return replace(response, headers={**response.headers, "X-Mine": "1"})

    async def scenario() -> bytes:
        reader, writer = asyncio.StreamReader(), Writer()
        reader.feed_data(sent)
        reader.feed_eof()
        server = HttpServer(say_hello, RequestLimits(body_bytes=1000), refused)
        await server.serve_connection(reader, writer)  # type: ignore[arg-type]
        return writer.sent

    answer = asyncio.run(scenario())

    assert refusals == ([] if seen is None else [seen])
    assert (b"x-mine: 1" in answer.lower()) == (seen is not None)
