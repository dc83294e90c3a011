"""The embedded server's REST side as an ASGI application, with models that are made up."""

import gzip
import threading
import zlib
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from support.rest_app import Passed, RestAppOnAModel
from tfs_proxy.embedded.core.process_ledger import ProcessLedger
from tfs_proxy.embedded.core.servable import Array
from tfs_proxy.embedded.rest import requests

METRICS = "/monitoring/prometheus/metrics"
BODY = b'{"instances": [1.0]}'


class Held(Passed):
    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()
        self.calls = 0

    def answer(self, given: Mapping[str, Array], fetches: Sequence[str]) -> Sequence[Array]:
        self.calls += 1
        self.gate.wait(30)
        return super().answer(given, fetches)


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as made:
        yield made


@pytest.mark.parametrize("cors", [True, False])
def test_a_browser_may_ask_first_from_any_origin(pool: ThreadPoolExecutor, cors: bool) -> None:
    """OPTIONS is fine with an origin of the web and refused without, the flag or not; neither has a body."""
    server = RestAppOnAModel(pool, cors=cors)
    for path in ("/v1/models/m:predict", "/v1/models/nope", "/v1/x"):
        asked = server.ask("OPTIONS", path, origin="https://example.org")
        assert (asked.status, asked.body) == (200, b"")
        assert asked.headers.get("access-control-allow-origin") == ("*" if cors else None)
        assert server.ask("OPTIONS", path).status == 400
        assert server.ask("OPTIONS", path, origin="null").status == 400
    assert server.ask("OPTIONS", "/x", origin="https://example.org").status == 404


def test_only_the_api_speaks_of_origins(pool: ThreadPoolExecutor) -> None:
    """With the flag its answers have the headers, refusals too; other pages and metrics have none."""
    server = RestAppOnAModel(pool, cors=True, metrics_path=METRICS)
    for method, path in (("POST", "/v1/models/m:predict"), ("GET", "/v1/models/nope"), ("PUT", "/v1/x")):
        headers = server.ask(method, path, BODY).headers
        assert headers["access-control-allow-methods"] == "POST, GET"
    for path in ("/", METRICS, "/v1/models/%zz"):
        assert "access-control-allow-origin" not in server.ask("GET", path).headers


def test_metrics_have_one_path_and_every_method(pool: ThreadPoolExecutor) -> None:
    """A query makes it another path, which is told in plain text; without the option there is no page."""
    server = RestAppOnAModel(pool, metrics_path=METRICS)
    server.predict(BODY)
    for method in ("GET", "POST", "PUT"):
        page = server.ask(method, METRICS, BODY)
        assert (page.status, page.headers["content-type"]) == (200, "text/plain")
        assert b":tensorflow:serving:request_count" in page.body
    other = server.ask("GET", f"{METRICS}?x=1")
    assert other.status == 400
    assert other.body.decode() == f"Unexpected path: {METRICS}?x=1. Should be {METRICS}"
    assert RestAppOnAModel(pool).ask("GET", METRICS).status == 404


@pytest.mark.parametrize(
    "path", ["/v1/models/%zz", "/v1/models/a%4", '/v1/models/"m"', "/{x}", "/v1/models/m?a b"]
)
def test_a_path_that_is_no_uri_is_a_plain_400(pool: ThreadPoolExecutor, path: str) -> None:
    """TF Serving's HTTP server refuses it before anybody looks at what it asks for."""
    reply = RestAppOnAModel(pool).ask("GET", path)
    assert (reply.status, reply.headers["content-type"]) == (400, "text/html")
    assert b"<TITLE>400 Bad Request</TITLE>" in reply.body


def test_a_packed_body_is_one_whole_packed_document(pool: ThreadPoolExecutor) -> None:
    server = RestAppOnAModel(pool)
    packed = gzip.compress(BODY)
    for value in ("gzip", "x-gzip", "gzip, identity"):
        assert server.predict(packed, content_encoding=value).status == 200
    for body in (b"plain", b"", packed[:-5], packed + packed, packed + b"x", zlib.compress(BODY)):
        reply = server.predict(body, content_encoding="gzip")
        assert (reply.status, reply.json["error"]) == (400, "JSON Parse error: The document is empty")
    assert server.predict(BODY, content_encoding="identity").status == 200
    assert server.ask("GET", "/v1/models/m/metadata", b"plain", content_encoding="gzip").status == 200


def test_a_packed_body_has_a_limit(pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "MAX_UNPACKED_BYTES", 1000)
    fits = BODY + b" " * (1000 - len(BODY))
    assert RestAppOnAModel(pool).predict(gzip.compress(fits), content_encoding="gzip").status == 200
    reply = RestAppOnAModel(pool).predict(gzip.compress(fits + b" "), content_encoding="gzip")
    assert reply.json["error"] == "JSON Parse error: The document is empty"


def test_a_request_that_takes_too_long_is_given_up(pool: ThreadPoolExecutor) -> None:
    held = Held()
    slow = RestAppOnAModel(pool, backend=held, timeout_seconds=0.01).predict(BODY)
    held.gate.set()
    assert (slow.status, slow.json["error"]) == (504, "Timed out waiting for notification")
    assert RestAppOnAModel(pool, seconds=0.05, timeout_seconds=None).predict(BODY).status == 200


def test_a_request_that_was_given_up_is_not_begun() -> None:
    """Else a server that is behind computes answers that nobody waits for, and never catches up."""
    free = threading.Event()
    backend = Held()
    backend.gate.set()
    with ThreadPoolExecutor(1) as only:
        only.submit(free.wait, 60)
        server = RestAppOnAModel(only, backend=backend, timeout_seconds=0.01)
        packed = server.predict(gzip.compress(BODY), content_encoding="gzip")
        assert [server.predict(BODY).status, packed.status] == [504, 504]
        free.set()
    assert backend.calls == 0
    server.servable.retire()


LARGE_BODY = b'{"instances": [1.0' + b",1.0" * 1_000_000 + b"]}"


@pytest.mark.parametrize("packed", [False, True])
def test_a_large_request_without_memory_is_asked_to_come_again(
    pool: ThreadPoolExecutor, packed: bool
) -> None:
    """503 with Retry-After; small ones go on, without a look at what the others have."""
    ledger = ProcessLedger(100, wait_seconds=0.0)
    ledger.reserve(100)
    server = RestAppOnAModel(pool, ledger=ledger)
    headers = {"content_encoding": "gzip"} if packed else {}
    answer = server.predict(gzip.compress(LARGE_BODY, 1) if packed else LARGE_BODY, **headers)
    assert (answer.status, answer.headers["retry-after"]) == (503, "1")
    assert answer.json == {
        "error": "Other large requests are using the memory that this one needs: try again."
    }
    assert server.predict(BODY).status == 200
