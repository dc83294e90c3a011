"""requests.post(context.rest_uri) over the pool: what the server sees and the caller gets is the same."""

import gzip
import http.server
import io
import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
import requests
from requests.auth import HTTPBasicAuth

from tfs_proxy.serving.upstream.pooled_requests import PooledRequests
from tfs_proxy.serving.upstream.rest import RestUpstream
from tfs_proxy.values.deployment import Instance


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers what it was asked, in the way that the path says."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1

    def do_GET(self) -> None:
        """Answer."""
        length = int(self.headers.get("Content-Length", 0))
        body = self.rfile.read(length).decode("latin-1")
        server: Any = self.server
        server.connections.add(self)
        seen = {"method": self.command, "path": self.path, "headers": dict(self.headers), "body": body}
        if "slow" in self.path:
            time.sleep(1)
        text = json.dumps(seen).encode()
        status = 503 if "full" in self.path else 200
        self.send_response(status)
        self.send_header("Content-Type", "application/json; charset=utf-8")
        if "gzip" in self.path:
            text = gzip.compress(text)
            self.send_header("Content-Encoding", "gzip")
        if "chunks" in self.path:
            self.send_header("Transfer-Encoding", "chunked")
            text = (
                b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in (text[:9], text[9:])) + b"0\r\n\r\n"
            )
        else:
            self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    do_POST = do_PUT = do_GET  # noqa: N815

    def log_message(self, *_: object) -> None:
        """Say nothing."""


class Server(http.server.ThreadingHTTPServer):
    """Counts the connections that were used."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.connections: set[Handler] = set()
        """A handler lives as long as its connection, whose port the next one may have."""

    @property
    def url(self) -> str:
        """As a script's ``rest_uri`` names it."""
        return f"http://localhost:{self.server_port}/v1/models/m:predict"


@contextmanager
def running_server() -> Iterator[Server]:
    """A server on a free port."""
    with Server() as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        running.shutdown()
        thread.join()


@pytest.fixture
def server() -> Iterator[Server]:
    """The instance's server."""
    with running_server() as running:
        yield running


@pytest.fixture
def pool(server: Server) -> Iterator[PooledRequests]:
    """A pool for that server, not installed."""
    instances = [Instance(0, server.server_port, 0, "")]
    rest = RestUpstream(instances, 60)
    yield PooledRequests(instances, rest)
    rest.close()


def asked(url: str, method: str = "POST", **options: Any) -> dict[str, Any]:
    """What a caller of `requests` sees of the answer, and the server of the request."""
    response = requests.request(method, url, **options)
    seen = response.json()
    return {
        "seen": {**seen, "headers": {name.lower(): value for name, value in seen["headers"].items()}},
        "status": response.status_code,
        "type": type(response),
        "url": response.url,
        "reason": response.reason,
        "encoding": response.encoding,
        "content type": response.headers["content-type"],
        "sent": None if hasattr(response.request.body, "read") else response.request.body,
        "text": response.text == response.content.decode(),
        "pieces": b"".join(response.iter_content(7)) == response.content,
        "history": response.history,
        "elapsed": response.elapsed.total_seconds() > 0,
    }


CASES: dict[str, dict[str, Any]] = {
    "bytes": {"data": b'{"instances": [1]}'},
    "text": {"data": '{"instances": ["é"]}'},
    "form": {"data": {"a": "1 2", "b": ["x", "y"]}},
    "json": {"json": {"instances": [1.5]}},
    "nothing": {},
    "empty": {"data": b""},
    "headers": {"data": b"x", "headers": {"content-type": "text/csv", "X-Own": "1", "Accept": None}},
    "bytes in a header": {"data": b"x", "headers": {"X-Own": b"1"}},
    "params": {"params": {"a": "b c"}, "data": b"x"},
    "timeout": {"data": b"x", "timeout": 5},
    "two timeouts": {"data": b"x", "timeout": (1, 5)},
    "no time": {"data": b"x", "timeout": (None, None)},
    "get": {"method": "GET"},
    "put": {"method": "PUT", "data": b"x"},
    "small letters": {"method": "post", "data": b"x"},
    "auth": {"auth": HTTPBasicAuth("user", "word"), "data": b"x"},
    "cookies": {"cookies": {"a": "b"}, "data": b"x"},
    "large": {"data": b"x" * 3_000_000},
    "file": {"data": io.BytesIO},
    "host": {"data": b"x", "headers": {"Host": "other"}},
    "stream": {"data": b"x", "stream": True},
}


def fresh(options: dict[str, Any]) -> dict[str, Any]:
    """Options with a file that nobody has read."""
    return {**options, "data": io.BytesIO(b"content")} if options.get("data") is io.BytesIO else options


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("path", ["", "?full", "?gzip", "?chunks"])
def test_it_is_what_requests_does(server: Server, pool: PooledRequests, name: str, path: str) -> None:
    """Both the server and the caller see the same with the pool and without it."""
    want = asked(server.url + path, **fresh(CASES[name]))
    with pool.installed():
        given = asked(server.url + path, **fresh(CASES[name]))
    assert given == want


def test_connections_are_shared(server: Server, pool: PooledRequests) -> None:
    """Calls of the functions and of sessions share the kept connections; without the pool each has its own."""
    with pool.installed():
        for _ in range(5):
            requests.post(server.url, data=b"x", timeout=5)
        session = requests.Session()
        for _ in range(5):
            session.post(server.url, json={"a": 1}, headers={"X-Own": "1"})
        requests.get(server.url)
        assert len(server.connections) == 1
        with ThreadPoolExecutor(4) as threads:
            list(threads.map(lambda _: requests.post(server.url, data=b"x", timeout=5), range(40)))
    assert len(server.connections) <= 5
    before = len(server.connections)
    for _ in range(3):
        requests.post(server.url, data=b"x", timeout=5)
    assert len(server.connections) == before + 3


def test_a_sessions_own_ways_stay(server: Server, pool: PooledRequests) -> None:
    """Hooks, default headers, cookies and auth of a session are honoured."""
    called = []
    with pool.installed(), requests.Session() as session:
        session.headers["X-Session"] = "yes"
        session.auth = ("user", "word")
        session.hooks["response"].append(lambda response, **_: called.append(response.status_code))
        seen = session.post(server.url, data=b"x").json()
    assert called == [200]
    assert seen["headers"]["X-Session"] == "yes"
    assert seen["headers"]["Authorization"].startswith("Basic ")


def test_other_addresses_are_left_alone(server: Server, pool: PooledRequests) -> None:
    """Only our instances' addresses are served by the pool."""
    with running_server() as other, pool.installed():
        for _ in range(3):
            requests.post(other.url, data=b"x", timeout=5)
    assert len(other.connections) == 3
    assert not server.connections


def test_errors_are_those_of_requests(server: Server, pool: PooledRequests) -> None:
    """Too slow is a ReadTimeout, nobody there a ConnectionError, nonsense what requests says of it."""
    instances = [Instance(0, 1, 0, "")]
    rest = RestUpstream(instances, 5)
    with pool.installed():
        with pytest.raises(requests.exceptions.ReadTimeout):
            requests.post(server.url + "?slow", data=b"x", timeout=0.2)
        with pytest.raises(requests.exceptions.InvalidHeader):
            requests.post(server.url, data=b"x", headers={"X": "a\r\nb"}, timeout=5)
        with pytest.raises(ValueError, match="timeout"):
            requests.post(server.url, data=b"x", timeout=0)
    with PooledRequests(instances, rest).installed(), pytest.raises(requests.exceptions.ConnectionError):
        requests.post("http://localhost:1/v1/models/m:predict", data=b"x", timeout=5)
    rest.close()
