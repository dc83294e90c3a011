"""Promises that hold with nginx in front and without it: the start, refusals, counts, and the stop."""

import contextlib
import http.client
import json
import os
import re
import signal
import socket
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from support import gates
from support.archives import NEEDS_NGINX, stand_in_words, without_nginx
from support.running import Answer
from support.scraping import Scrape, counted, scrape
from support.stack import Stack, serving
from tfs_proxy.model.report.first_request import TRY
from tfs_proxy.wire.header_names import NGINX_ID

NGINX = pytest.param({}, id="nginx", marks=NEEDS_NGINX)
GUNICORN = pytest.param(without_nginx(), id="gunicorn")
GEVENT = pytest.param({**without_nginx(), "SAGEMAKER_GUNICORN_WORKER_CLASS": "gevent"}, id="gevent")
SYNC = pytest.param({**without_nginx(), "SAGEMAKER_GUNICORN_WORKER_CLASS": "sync"}, id="sync")
FRONTS = [NGINX, GUNICORN]
ROUNDS = 20
INSTANCES = b'{"instances": [1.0]}'
INFERENCE_ID, REQUEST_ID = "X-Amzn-SageMaker-Inference-Id", "X-Request-Id"
ANSWERS = {
    "fast path": ("POST", "/invocations", INSTANCES, "application/json", 200),
    "worker": ("GET", "/execution-parameters", None, "", 200),
    "serving API": ("GET", "/v1/models/m", None, "", 200),
    "unsupported": ("POST", "/invocations", b"?", "application/x-unknown", 415),
    "too large": ("POST", "/invocations", b" " * 1_100_000, "application/json", 413),
    "not found": ("GET", "/nothing/here", None, "", 404),
}
JSON = {"Content-Type": "application/json"}
SCRIPT = f"""{gates.SCRIPT}


def handler(data, context):
    what = data.read().decode()
    if what == "interrupt":
        raise KeyboardInterrupt
    if what == "path":
        open("/opt/secret/token")
    if what.startswith("/"):
        hold(what)
    return "let go", "text/plain"
"""
ATTRIBUTES = "X-Amzn-SageMaker-Custom-Attributes"
CHUNKED = b"POST /invocations HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
Labels = tuple[str, str, str]


@pytest.fixture(scope="module", params=FRONTS)
def stack(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Stack]:
    """A model without a script, so that nginx has its fast path, and a small body limit."""
    env = {"SAGEMAKER_GUNICORN_WORKERS": "2", "SAGEMAKER_MAX_PAYLOAD_IN_MB": "1", **request.param}
    with serving(*stand_in_words(tmp_path_factory.mktemp("stack")), env=env) as running:
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


MIX: tuple[Callable[[Stack], Labels], ...] = (
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


@pytest.mark.parametrize("stack", [*FRONTS, GEVENT], indirect=True)
def test_a_mix_of_requests_adds_up(stack: Stack) -> None:
    """Fast path, refusals, errors and clients that hang up, before and after everything was killed once.

    It comes first: the lines of requests of a test before it could come later than their answers.
    """
    before = counted(stack)  # requests that came while it started
    sent = before + send_mix(stack)
    assert hung_up_as(wait_for_counts(stack, sent), sent) == sent

    for name in ("nginx", "gunicorn"):
        for pid in stack.children().get(name, [])[1:]:
            os.kill(pid, signal.SIGKILL)
    stack.wait_until(lambda: stack.is_ready() and stack.invoke(INSTANCES).status == 200, "it answers again")
    # The line of the request that was just answered comes after its answer, and belongs to no mix.
    stack.wait_until(lambda: counted(stack)[ANSWERED] > sent[ANSWERED], "the answered one is counted")
    between = counted(stack)
    assert not sent - between - Counter({("/invocations", "POST", "hung up"): ROUNDS})

    sent = between + send_mix(stack)
    assert hung_up_as(wait_for_counts(stack, sent), sent) == sent
    assert scrape(stack).total("tfs_proxy_unreadable_request_lines_total") == 0


def test_probes_are_counted_apart(stack: Stack) -> None:
    """They are no requests of clients."""

    def probes(path: str) -> float:
        return scrape(stack).total("tfs_proxy_probe_requests_total", path=path, status="200")

    paths = ("/ping", "/live", "/v2/health/live")
    before, scrapes = [probes(path) for path in paths], probes("/metrics")
    for path in paths * 5:
        stack.ask("GET", path)
    stack.wait_until(
        lambda: [probes(path) for path in paths] == [count + 5 for count in before], "five more are counted"
    )
    stack.wait_until(lambda: probes("/metrics") > scrapes, "scrapes are counted")

    assert not list(scrape(stack).values("http_server_request_duration_seconds_count", http_route="/ping"))


def outcomes(metrics: Scrape) -> Counter[tuple[str, str, str]]:
    """Requests by model, version and outcome."""
    counts: Counter[tuple[str, str, str]] = Counter()
    for labels, value in metrics.values("tfs_proxy_model_requests_total"):
        counts[labels["model"], labels["version"], labels["outcome"]] += int(value)
    return counts


def test_requests_count_for_their_model_on_every_path(stack: Stack) -> None:
    """The fast path, workers, TF Serving's API and refusals; what a client makes up shares a value."""
    first = scrape(stack)
    before = outcomes(first)
    stack.invoke(INSTANCES)
    stack.invoke(INSTANCES, **{ATTRIBUTES: "tfs-model-name=m,tfs-model-version=1"})
    stack.invoke(b"?", "application/x-unknown", **{ATTRIBUTES: "tfs-model-version=1"})
    stack.invoke(INSTANCES, **{ATTRIBUTES: "tfs-model-name=made-up"})
    stack.ask("POST", "/v1/models/m/versions/1:predict", INSTANCES, {"Content-Type": "application/json"})
    stack.ask("GET", "/nothing/here")
    expected = Counter(
        {
            ("m", "latest", "ok"): 1,
            ("m", "1", "ok"): 2,
            ("m", "1", "client_error"): 1,
            ("other", "other", "ok"): 1,  # the stand-in answers for any model
        }
    )
    stack.wait_until(lambda: outcomes(scrape(stack)) - before == expected, "all are counted")
    metrics = scrape(stack)

    assert (
        metrics.total("tfs_proxy_model_request_duration_seconds_count", model="m", version="1")
        == first.total("tfs_proxy_model_request_duration_seconds_count", model="m", version="1") + 3
    )
    assert metrics.total("tfs_proxy_request_bytes_total", model="m", version="1") >= 2 * len(INSTANCES)
    assert metrics.total("tfs_proxy_response_bytes_total", model="m", version="latest") > 0


def test_the_path_of_the_model_servers_metrics_is_published_nowhere(stack: Stack) -> None:
    """Neither at the serving port, nor where anybody would look at a model server that is open to the outside."""
    (file,) = stack.home.glob("*/monitoring.pbtxt")
    path, usual = file.read_text().split('"')[1], "/monitoring/prometheus/metrics"
    assert stack.ask("GET", path, port=stack.model_server_port()).status == 200
    assert stack.ask("GET", usual, port=stack.model_server_port()).status == 404
    for guess in (path, usual, f"/v1{path}", f"/v1/..{path}", f"/v1/models/..%2f..{path}"):
        answer = stack.ask("GET", guess)
        assert answer.status in {400, 404}, guess
        assert b"request_count" not in answer.body, guess


@pytest.mark.parametrize("stack", [*FRONTS, SYNC, GEVENT], indirect=True)
@pytest.mark.parametrize(
    ("sent", "statuses"),
    [
        (b"<script>\r\n\r\n", {400}),
        (b"TRACE /invocations HTTP/1.1\r\nHost: a\r\n\r\n", {405}),
        (
            b"POST /invocations HTTP/1.1\r\nHost: a\r\nContent-Length: 3000000\r\n\r\n" + b"a" * 3_000_000,
            {413},
        ),
        (CHUNKED + (b"100000\r\n" + b"a" * 0x100000 + b"\r\n") * 3 + b"0\r\n\r\n", {413}),
        (CHUNKED + b"2;=<script>\r\nab\r\n0\r\n\r\n", {400, 404}),
        *(
            (b"POST /invocations HTTP/1.1\r\nHost: a\r\n" + headers + b"\r\n\r\nab", statuses)
            for headers, statuses in [
                (b"Content-Length: <script>", {400}),
                (b"Transfer-Encoding: <script>", {400, 501}),
                (b"Expect: <script>\r\nContent-Length: 2", {404, 417}),
                (b"<script>: 1\r\nContent-Length: 2", {400, 404}),
            ]
        ),
        (b"GET /nope HTTP/1.1\r\nHost: a\r\nSCRIPT_NAME: /x\r\nPATH_INFO: /ping\r\n\r\n", {404}),
        (b"POST /workers/1/../../ping HTTP/1.1\r\nHost: a\r\n\r\n", {404, 405}),
        (b"GET /released/1/../../v2/models/a%0d%0ab%20c%3f/stats HTTP/1.1\r\nHost: a\r\n\r\n", {404}),
        *(
            (f"{method} {path} HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n".encode(), {status})
            for method, path, status in [
                ("PUT", "/", 405),
                ("GET", "/deployment", 404),
                ("GET", "/settled", 404),
                ("POST", "/workers", 404),
                ("GET", "/.refused/400", 404),
            ]
        ),
    ],
    ids=lambda value: repr(value[:30]) if isinstance(value, bytes) else "",
)
def test_refusals_are_json(stack: Stack, sent: bytes, statuses: set[int]) -> None:
    """No HTML page, whoever says no; the supervisor's own pages are no client's business. Contract and attack have more."""
    reply = stack.raw(sent)
    head, _, body = reply.partition(b"\r\n\r\n")

    assert int(head.split()[1]) in statuses
    assert b"application/json" in head, reply
    assert json.loads(body).keys() == {"error"}
    assert json.loads(body)["error"]
    assert b"<script" not in body
    assert len(re.findall(rb"(?i)x-request-id: [0-9a-f]{32}\r\n", head + b"\r\n")) == 1


@pytest.mark.parametrize("stack", [*FRONTS, SYNC, GEVENT], indirect=True)
@pytest.mark.parametrize("kind", ANSWERS)
@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({INFERENCE_ID: "of-sagemaker", REQUEST_ID: "of-the-client"}, "of-sagemaker"),
        ({REQUEST_ID: "of-the-client"}, "of-the-client"),
        ({INFERENCE_ID: "<a b>", REQUEST_ID: "x" * 129, NGINX_ID: "1 again"}, "[0-9a-f]{32}"),
        ({}, "[0-9a-f]{32}"),
    ],
    ids=["inference id", "request id", "hostile", "none"],
)
def test_every_answer_has_an_id(stack: Stack, kind: str, headers: dict[str, str], expected: str) -> None:
    """The client's if it is plain, else a new one, whatever path the request takes."""
    method, path, body, content_type, status = ANSWERS[kind]

    answer = stack.ask(method, path, body, {"Content-Type": content_type, **headers})

    assert answer.status == status
    assert re.fullmatch(expected, answer.headers[REQUEST_ID.lower()])


def test_http_1_0_needs_no_host(stack: Stack) -> None:
    """As old clients and probes send it; nginx passes it on in HTTP/1.1."""
    head = b"POST /invocations HTTP/1.0\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    assert b" 200 " in stack.raw(head % len(INSTANCES) + INSTANCES).partition(b"\r\n")[0]


def pings_until_loading(stack: Stack) -> list[Answer]:
    """What /ping says, until it says that models are being loaded."""
    pings: list[Answer] = []

    def is_loading() -> bool:
        with contextlib.suppress(ConnectionRefusedError):
            pings.append(stack.ask("GET", "/ping"))
        return bool(pings) and "loading the models" in pings[-1].json["error"]

    stack.wait_until(is_loading, "/ping says that the models are being loaded")
    return pings


def in_flight(stack: Stack) -> float:
    """What a scrape says."""
    return scrape(stack).total("tfs_proxy_requests_in_flight")


def assert_no_client_counts(stack: Stack) -> None:
    """The header that says how many requests are in flight is nginx's own."""
    for count in ("99", "9" * 5000):
        scraped = stack.ask("GET", "/metrics", headers={"X-Tfs-Proxy-In-Flight": count})
        assert (scraped.status, b"requests_in_flight 9" in scraped.body) == (200, False)


@pytest.mark.parametrize("front", FRONTS)
def test_a_run_from_its_start_to_its_end(tmp_path: Path, front: dict[str, str]) -> None:
    """503 with a reason until all is ready, also on kept connections; at SIGTERM what is in flight finishes."""
    loading, held = gates.Gate(tmp_path / "loading"), gates.Gate(tmp_path / "held")
    env = {"STAND_IN_GATE": loading.mark(), "TFS_PROXY_STOP_SECONDS": "600", **front}
    stack = Stack(*stand_in_words(tmp_path, SCRIPT), env=env)
    with contextlib.closing(stack), ThreadPoolExecutor(1) as pool, contextlib.ExitStack() as last:
        last.callback(held.open)
        pings = pings_until_loading(stack)
        kept = http.client.HTTPConnection(stack.host, stack.port, timeout=60)

        def status_on_kept() -> int:
            kept.request("POST", "/invocations", b"x", JSON)
            with kept.getresponse() as reply:
                reply.read()
                return reply.status

        refused = [*pings, stack.invoke("{}"), stack.ask("GET", "/nope"), stack.ask("GET", "/v1/models/m")]
        assert (stack.ask("GET", "/live").status, stack.ask("HEAD", "/live").body) == (200, b"")
        assert stack.ask("GET", "/v2/health/live").json == {"live": True}
        assert {status_on_kept(), *(answer.status for answer in refused)} == {503}
        assert all(answer.json.keys() == {"error"} for answer in refused)
        early = stack.ask("POST", "/invocations", "{}", {REQUEST_ID: "early"})
        assert (early.status, early.headers["x-request-id"]) == (503, "early")
        stack.wait_for_log("[early] request method=POST path=/invocations status=503")
        assert_no_client_counts(stack)
        metrics = scrape(stack)
        assert (metrics.total("tfs_proxy_ready"), metrics.total("tfs_proxy_phase", phase="starting")) == (
            0,
            1,
        )
        assert metrics.total("tfs_proxy_startup_seconds", step="loading the models") > 0

        loading.open()
        stack.wait_until(lambda: status_on_kept() == 200, "a request on the kept connection is answered")
        told_ready = kept.sock
        stack.wait_for_log(TRY)  # the last line of a start
        assert (status_on_kept(), kept.sock) == (200, told_ready), (
            "the connection that was told so stays open"
        )
        stack.wait_ready()
        assert_no_client_counts(stack)
        ready = stack.ask("GET", "/ping")
        assert (ready.status, ready.body) == (200, b"")
        workers = set(stack.children()["gunicorn"])
        assert [stack.invoke(text, "text/plain").status for text in ("interrupt", "path", "x")] == [
            500,
            500,
            200,
        ]
        told = stack.invoke("path", "text/plain").json["error"]
        assert ("token" in told, "secret" in told) == (True, False)
        assert workers <= set(stack.children()["gunicorn"])
        kept.close()

        slow = pool.submit(stack.invoke, held.mark(), "text/plain")
        held.wait_for()
        stack.wait_until(lambda: in_flight(stack) == 1, "the held one is in flight")
        stack.process.send_signal(signal.SIGTERM)
        stack.wait_until_refused()
        held.open()
        assert (slow.result().status, slow.result().body) == (200, b"let go")
        assert front or slow.result().headers["connection"] == "close"  # nginx says that it hangs up
        assert stack.wait() == 0
