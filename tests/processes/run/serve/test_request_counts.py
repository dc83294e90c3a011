"""Every request is counted exactly once, whatever path it takes and whatever is killed between requests."""

import os
import signal
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from http.client import HTTPConnection
from pathlib import Path

import grpc
import pytest

from support import gates
from support.archives import has_nginx, stand_in_archive, stand_in_program, without_nginx
from support.scraping import scrape
from support.stack import Stack, serving

NEEDS_NGINX = pytest.mark.skipif(not has_nginx(), reason="nginx is not installed")
FRONTS = [
    pytest.param({"TFS_PROXY_GRPC_PORT": "0"}, id="nginx", marks=NEEDS_NGINX),
    pytest.param(without_nginx(), id="gunicorn"),
    pytest.param({**without_nginx(), "SAGEMAKER_GUNICORN_WORKER_CLASS": "gevent"}, id="gevent"),
]
COUNT = "http_server_request_duration_seconds_count"
ROUNDS = 20
SLOW_READER_REQUESTS = 3000
WRITE_SECONDS, MARGIN = 0.010, 4
"""What nginx may wait for whoever reads its lines, and what the machine may take for other things."""

INSTANCES = b'{"instances": [1.0]}'
SCRIPT = f"""{gates.SCRIPT}


def handler(data, context):
    hold(data.read().decode())
    return b"done", "text/plain"
"""
Labels = tuple[str, str, str]
Send = Callable[[Stack], Labels]


@pytest.fixture(scope="module", params=FRONTS)
def stack(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Stack]:
    """A model without a script, so that nginx has its fast path, and a small body limit."""
    folder = tmp_path_factory.mktemp("stack")
    archive = stand_in_archive(folder / "model.tar.gz")
    env = {"SAGEMAKER_GUNICORN_WORKERS": "2", "SAGEMAKER_MAX_PAYLOAD_IN_MB": "1", **request.param}
    with serving(str(archive), "--model-server", stand_in_program(folder), env=env) as running:
        yield running


def send(method: str, path: str, route: str, body: bytes | None, content_type: str, stack: Stack) -> Labels:
    """One request; the labels under which it is to be counted."""
    answer = stack.ask(method, path, body, {"Content-Type": content_type})
    return route, method if method != "BREW" else "_OTHER", str(answer.status)


def send_garbage(stack: Stack) -> Labels:
    """Bytes that are not HTTP."""
    answer = stack.raw(b"nonsense\r\n\r\n")
    assert b" 400 " in answer.split(b"\r\n", 1)[0]
    return "other", "_OTHER", "400"


def hang_up(stack: Stack) -> Labels:
    """Half a body, and nobody who waits for the answer."""
    with socket.create_connection((stack.host, stack.port)) as link:
        link.sendall(b"POST /invocations HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n{")
    return "/invocations", "POST", "hung up"


MIX: tuple[Send, ...] = (
    partial(send, "POST", "/invocations", "/invocations", INSTANCES, "application/json"),
    partial(send, "POST", "/invocations?a=b", "/invocations", b"1.0\n", "text/csv"),
    partial(send, "POST", "/invocations", "/invocations", b"?", "application/x-unknown"),
    partial(send, "POST", "/invocations", "/invocations", b" " * 1_100_000, "application/json"),
    partial(send, "GET", "/invocations", "/invocations", None, "application/json"),
    partial(send, "BREW", "/invocations", "/invocations", None, "application/json"),
    partial(send, "GET", "/nothing/here", "other", None, "application/json"),
    partial(send, "GET", "/execution-parameters", "/execution-parameters", None, "application/json"),
    partial(send, "GET", "/v1/models/m", "/v1/models/{model}", None, "application/json"),
    partial(
        send, "POST", "/v1/models/m:predict", "/v1/models/{model}:predict", INSTANCES, "application/json"
    ),
    send_garbage,
    hang_up,
)


ANSWERED: Labels = ("/invocations", "POST", "200")


def counted(stack: Stack) -> Counter[Labels]:
    """What `/metrics` has, by route, method and status."""
    counts: Counter[Labels] = Counter()
    for labels, value in scrape(stack).values(COUNT):
        route, method = labels["http_route"], labels["http_request_method"]
        counts[route, method, labels["http_response_status_code"]] += int(value)
    return counts


def send_mix(stack: Stack) -> Counter[Labels]:
    """Every kind of request, many at a time; what was sent."""
    with ThreadPoolExecutor(8) as clients:
        return Counter(clients.map(lambda send: send(stack), MIX * ROUNDS))


def wait_for_counts(stack: Stack, sent: Counter[Labels]) -> Counter[Labels]:
    """Wait until as many are counted as were sent; a line is written after the answer."""
    stack.wait_until(lambda: counted(stack).total() >= sent.total(), f"{sent.total()} are counted")
    return counted(stack)


def hung_up_as(counts: Counter[Labels], sent: Counter[Labels]) -> Counter[Labels]:
    """``counts`` with what is there beyond ``sent`` as requests whose clients hung up, whatever their status."""
    beyond = counts - sent
    assert {labels[:2] for labels in beyond} == {("/invocations", "POST")}, (counts, sent)
    return counts - beyond + Counter({("/invocations", "POST", "hung up"): beyond.total()})


def test_a_mix_of_requests_adds_up(stack: Stack) -> None:
    """Fast path, refusals, errors and clients that hang up, before and after everything was killed once."""
    before = counted(stack)  # requests that came while it started
    sent = before + send_mix(stack)
    assert hung_up_as(wait_for_counts(stack, sent), sent) == sent

    for name in ("nginx", "gunicorn"):
        for pid in stack.children().get(name, [])[1:]:
            os.kill(pid, signal.SIGKILL)
    stack.wait_until(lambda: is_answering(stack), "requests are answered again")
    # The line of the request that was just answered comes after its answer, and belongs to no mix.
    stack.wait_until(lambda: counted(stack)[ANSWERED] > sent[ANSWERED], "the answered one is counted")
    between = counted(stack)
    assert not sent - between - Counter({("/invocations", "POST", "hung up"): ROUNDS})

    sent = between + send_mix(stack)
    assert hung_up_as(wait_for_counts(stack, sent), sent) == sent
    assert scrape(stack).total("tfs_proxy_unreadable_request_lines_total") == 0


def is_answering(stack: Stack) -> bool:
    """Whether an invocation is answered with 200."""
    return stack.is_ready() and stack.invoke(INSTANCES).status == 200


def test_probes_are_counted_apart(stack: Stack) -> None:
    """They are no requests of clients."""

    def probes(path: str) -> float:
        return scrape(stack).total("tfs_proxy_probe_requests_total", path=path, status="200")

    pings, scrapes = probes("/ping"), probes("/metrics")
    for _ in range(5):
        stack.ask("GET", "/ping")
    stack.wait_until(lambda: probes("/ping") == pings + 5, "five more pings are counted")
    stack.wait_until(lambda: probes("/metrics") > scrapes, "scrapes are counted")

    assert not list(scrape(stack).values(COUNT, http_route="/ping"))


@pytest.mark.parametrize("stack", FRONTS[:1], indirect=True)
def test_grpc_calls_are_counted_with_their_status(stack: Stack) -> None:
    """The status of gRPC is in the trailers, that of HTTP is always 200."""
    before = counted(stack)["other", "POST", "200"]
    with grpc.insecure_channel(stack.grpc) as channel:
        for _ in range(3):
            with pytest.raises(grpc.RpcError):
                channel.unary_unary("/made.up.Service/Call")(b"", timeout=10)

    stack.wait_until(
        lambda: scrape(stack).total("tfs_proxy_grpc_requests_total", grpc_status="12") == 3,
        "three calls count",
    )
    assert counted(stack)["other", "POST", "200"] == before + 3


@pytest.mark.parametrize("stack", FRONTS[:1], indirect=True)
def test_nginx_waits_for_no_reader_and_loses_no_line(stack: Stack) -> None:
    """While the supervisor stands still, thousands of requests are answered as quickly, and counted later."""
    # The supervisor answers /ping and counts: stopped, it does neither.
    os.kill(stack.process.pid, signal.SIGSTOP)
    try:
        with closing(HTTPConnection(stack.host, stack.port, timeout=60)) as connection:
            seconds = sorted(_ask_nginx(connection) for _ in range(SLOW_READER_REQUESTS))
    finally:
        os.kill(stack.process.pid, signal.SIGCONT)

    assert seconds[int(len(seconds) * 0.99)] < WRITE_SECONDS * MARGIN
    stack.wait_until(
        lambda: counted(stack)["/", "TRACE", "405"] == SLOW_READER_REQUESTS,
        "every request is counted",
    )


def _ask_nginx(connection: HTTPConnection) -> float:
    """Seconds of a request that nginx answers by itself."""
    began = time.perf_counter()
    connection.request("TRACE", "/")
    response = connection.getresponse()
    response.read()
    assert response.status == 405
    return time.perf_counter() - began


@NEEDS_NGINX
def test_a_client_that_does_not_wait_counts_as_499(tmp_path: Path) -> None:
    """As in nginx's own logs."""
    archive = stand_in_archive(tmp_path / "model.tar.gz", script=SCRIPT)
    with (
        gates.gate(tmp_path / "gate") as gate,
        serving(str(archive), "--model-server", stand_in_program(tmp_path)) as stack,
        socket.create_connection((stack.host, stack.port)) as link,
    ):
        body = gate.mark().encode()
        link.sendall(
            b"POST /invocations HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
        )
        gate.wait_for()
        link.close()
        stack.wait_until(lambda: counted(stack)["/invocations", "POST", "499"] == 1, "it is counted")
        gate.open()
        assert counted(stack)["/invocations", "POST", "200"] == 0
