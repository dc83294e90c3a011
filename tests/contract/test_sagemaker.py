"""SageMaker's contract of a container, where no other file holds it: what its platform sends, and how it waits."""

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from http.client import HTTPResponse
from pathlib import Path

import psutil
import pytest

from contract.conftest import Start
from contract.doors import JSON, LOOPBACK, ONE, SECONDS, Answer, Outcome, Running
from contract.stacks import VARIABLE, archives

pytestmark = pytest.mark.tensorflow

CLIENTS = 32
"""More than there are threads that answer."""
PREFIX = "X-Amzn-SageMaker-"
LENGTHS = {"Target-Model": 1024, "Target-Variant": 63, "Target-Container-Hostname": 63, "Inference-Id": 64}
LENGTHS |= {"Enable-Explanations": 64, "Inference-Component": 63, "Prefix-Aware-Id": 64}
LONGEST = {PREFIX + name: "a" * length for name, length in LENGTHS.items()}
LONGEST[f"{PREFIX}Custom-Attributes"] = (
    "traceparent=00-1, key = \"a;b\" {'c'} ~!@#$%^&*()".ljust(1023, "a") + "!"
)
UNKNOWN = {f"{PREFIX}Of-Tomorrow": "1", "X-Unknown": "x" * 200, "Via": "1.1 a", "Accept": "*/*"}
TAKEN: Mapping[str, Mapping[str, str]] = {
    "nothing else": {},
    "unknown headers": UNKNOWN,
    "all at once": LONGEST,
    **{name: {name: value} for name, value in LONGEST.items()},
}
REFUSED: Mapping[str, tuple[str, Mapping[str, str], bytes]] = {
    "not understood": ("POST", JSON, b'{"instances": [[1.0, 2.0], "' + b"a" * 5000),
    "empty": ("POST", JSON, b""),
    "unknown type": ("POST", {"Content-Type": "application/x-no-such-type"}, b"\x00\x01"),
    "no type": ("POST", {}, b"3.0\n"),
    "unknown Accept": ("POST", {**JSON, "Accept": "application/x-no-such-type"}, ONE.encode()),
    "GET": ("GET", {}, b""),
}
GARBAGE = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(range(256)) + b"\r\n\r\n"
"""The beginning of a TLS client's greeting, followed by every byte value."""
NAMES = ("a" * 40, "b" * 40)
"""Hexadecimal, as those that SageMaker gives."""


class Served:
    """A stack of one kind, and a request that it answers."""

    def __init__(self, running: Running, kind: str = "") -> None:
        self.running = running
        csv, json_ = ("text/csv", b"3.0\n"), ("application/json", ONE.encode())
        self.type, self.body = csv if kind == "pipeline" else json_

    def good(self, **headers: str) -> Answer:
        return self.running.ask("POST", "/invocations", self.body, {"Content-Type": self.type, **headers})

    def head(self, length: int, *more: str) -> bytes:
        framing = f"Content-Length: {length}" if length else "Transfer-Encoding: chunked"
        lines = (
            "POST /invocations HTTP/1.1",
            f"Host: {LOOPBACK}",
            f"Content-Type: {self.type}",
            framing,
            *more,
        )
        return "\r\n".join((*lines, "", "")).encode()

    def link(self) -> socket.socket:
        return socket.create_connection((LOOPBACK, self.running.port), SECONDS)

    def ping(self) -> None:
        with within(2):
            answer = self.running.ask("GET", "/ping")
        assert (answer.status, answer.body) == (200, b"")


@pytest.fixture(params=["platform", "platform, bare", "pipeline"])
def served(request: pytest.FixtureRequest, stacks: Start) -> Served:
    """A script as SageMaker starts it, behind nginx and without it, and a pipeline."""
    return Served(stacks(request.param), request.param)


@pytest.fixture(params=["platform", "platform, bare"])
def scripted(request: pytest.FixtureRequest, stacks: Start) -> Served:
    """The script alone, which waits and streams as it is asked."""
    return Served(stacks(request.param))


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """It takes no longer."""
    began = time.monotonic()
    yield
    assert time.monotonic() - began < seconds


def at_once(act: Callable[[], Outcome], count: int = 20) -> list[Outcome]:
    """What so many clients get that act at the same time."""
    with ThreadPoolExecutor(count) as pool:
        return [each.result() for each in [pool.submit(act) for _ in range(count)]]


def test_ping_needs_nothing_and_minds_nothing(served: Served) -> None:
    """HEAD has no body; headers that it does not know are ignored; twenty at once are all answered in time."""
    assert served.running.ask("HEAD", "/ping").status == 200
    assert served.running.ask("GET", "/ping", headers=UNKNOWN).status == 200
    at_once(served.ping)


def test_connections_pings_and_scrapes_while_every_worker_is_busy(scripted: Served) -> None:
    """A connection is accepted within 250 ms, a ping answered within 2 s, also twenty at once, a scrape within 10."""
    over = threading.Event()

    def load() -> None:
        while not over.is_set():
            assert scripted.running.invoke('{"seconds": 0.4}').status == 200

    with ThreadPoolExecutor(CLIENTS) as pool:
        clients = [pool.submit(load) for _ in range(CLIENTS)]
        time.sleep(0.3)
        try:
            for _ in range(5):
                with within(0.25), scripted.link():
                    pass
                scripted.ping()
            at_once(scripted.ping)
            with within(10):
                assert scripted.running.ask("GET", "/metrics").status == 200
        finally:
            over.set()
        for client in clients:
            client.result()


@pytest.mark.parametrize("name", TAKEN)
def test_headers_of_the_platform_do_no_harm(served: Served, name: str) -> None:
    """At their longest, each and together, whichever case their names have: the answer is as without them."""
    plain = served.good()
    for change in (str, str.lower, str.upper):
        answer = served.good(**{change(key): value for key, value in TAKEN[name].items()})
        assert (answer.status, answer.body) == (200, plain.body)
        assert answer.headers["content-type"] == plain.headers["content-type"]


def test_the_host_may_be_any(scripted: Served) -> None:
    """Where others than this machine can connect, as in a container."""
    assert scripted.good(Host="169.254.255.131:8080").status == 200


@pytest.mark.parametrize("name", REFUSED)
def test_errors_are_short_sentences(served: Served, name: str) -> None:
    """The client's mistake is a 4xx, in JSON that OriginalMessage holds, without a traceback or a page."""
    method, headers, body = REFUSED[name]
    answer = served.running.ask(method, "/invocations", body, headers)

    if answer.status == 200 and name in {"no type", "unknown Accept"}:
        return
    assert 400 <= answer.status < 500
    assert isinstance(answer.json["error"], str)
    assert len(answer.body.decode()) <= 2048
    assert b"Traceback" not in answer.body


def test_bodies_may_arrive_in_any_way(served: Served) -> None:
    """In pieces, in chunks, or after 100 Continue, all on one connection, after an error too; nothing follows an answer."""
    whole = served.head(len(served.body))
    pieces = [bytes([each]) for each in served.body]
    chunks = [b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces]
    expecting = served.head(len(served.body), "Expect: 100-continue")
    sent: list[tuple[bool, list[bytes]]] = [
        (True, [whole, *pieces]),
        (True, [served.head(0), *chunks, b"0\r\n\r\n"]),
        (False, [served.head(2), b"no"]),
        (True, [expecting, served.body]),
    ]
    with served.link() as link:
        for is_good, (head, *body) in sent:
            link.sendall(head)
            if head == expecting:
                with within(1):
                    assert link.recv(25, socket.MSG_WAITALL) == b"HTTP/1.1 100 Continue\r\n\r\n"
            for part in body:
                link.sendall(part)
                time.sleep(0.005)
            reply = HTTPResponse(link)
            reply.begin()
            assert reply.read()
            assert reply.status == 200 if is_good else 400 <= reply.status < 500
        link.settimeout(0.1)
        with pytest.raises(TimeoutError):
            link.recv(1)


@pytest.mark.parametrize("length", [6 * 1024**2, 100 * 1024**2])
def test_bodies_as_long_as_sagemaker_sends_them(scripted: Served, length: int) -> None:
    """6 MB of a request, 100 MB of a batch transform job."""
    answer = scripted.running.invoke(b"a" * length, "application/octet-stream")

    assert (answer.status, answer.body) == (200, str(length).encode())


def test_a_job_may_do_what_execution_parameters_say(served: Served) -> None:
    """So many requests at once, of so many MB each, which together are 100 MB at most."""
    parameters = served.running.ask("GET", "/execution-parameters").json
    count, megabytes = parameters["MaxConcurrentTransforms"], parameters["MaxPayloadInMB"]
    assert min(count, megabytes) >= 1
    assert count * megabytes <= 100
    assert {each.status for each in at_once(served.good, count)} == {200}
    padded = served.body + b"\n" * (megabytes * 1024**2 - len(served.body))
    assert served.running.invoke(padded, served.type).status != 413


def test_nothing_that_clients_do_ends_it(served: Served) -> None:
    """Bad requests, bodies that break off and what is no HTTP: then it answers as before."""
    before = served.good()
    bad = at_once(lambda: served.running.invoke(b'["', served.type))
    assert all(400 <= each.status < 500 for each in bad)
    for broken in (served.head(10_000) + b"{", GARBAGE):
        for _ in range(10):
            with served.link() as link, suppress(ConnectionError):
                link.sendall(broken)

    served.ping()
    assert served.good().body == before.body


def test_streams_end_while_pings_are_answered(scripted: Served) -> None:
    """Four at once, in chunks; clients that leave in the middle do no harm."""
    body = json.dumps({"parts": 4})
    for _ in range(3):
        with scripted.link() as link:
            link.sendall(scripted.head(len(body)) + body.encode())
            link.recv(1)
    with ThreadPoolExecutor(4) as pool:
        streams = [pool.submit(scripted.running.invoke, body) for _ in range(4)]
        scripted.ping()
    found = {(each.result().body, each.result().headers["transfer-encoding"]) for each in streams}
    assert found == {(b"0\n1\n2\n3\n", "chunked")}


def test_every_port_is_the_platforms(scripted: Served) -> None:
    """It listens on that of invocations and on those of SAGEMAKER_SAFE_PORT_RANGE, and on no other."""
    run = psutil.Process(scripted.running.process.pid)
    ports = set()
    for process in (run, *run.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):
            ports |= {each.laddr.port for each in process.net_connections("tcp") if each.status == "LISTEN"}
    allowed = scripted.running.invoke('{"variable": "SAGEMAKER_SAFE_PORT_RANGE"}').body.decode()
    low, high = map(int, allowed.split("-"))

    assert {port for port in ports if not low <= port <= high} == {scripted.running.port}


def test_a_hundred_variables_reach_the_script(scripted: Served) -> None:
    """32 KB together, the longest of 1024 characters; among them the type of answers without an Accept."""
    for name, length in (("C" * 1024, 1024), (VARIABLE.format(90), 296)):
        answer = scripted.running.invoke(json.dumps({"variable": name}))
        assert (len(answer.body), answer.headers["content-type"]) == (length, "text/csv")


def test_what_clients_make_up_is_in_no_series(served: Served) -> None:
    """Paths, ids and custom attributes are no labels, of which each value would be a series."""
    for number in range(50):
        assert served.running.ask("GET", f"/made-up-{number}").status == 404
        made_up = dict.fromkeys(LONGEST, f"made-up={number}")
        assert served.good(**made_up).status == 200
    page = served.running.ask("GET", "/metrics").body

    assert b'http_route="other"' in page
    assert b"made-up" not in page


def test_a_platform_loads_unloads_and_pings(stacks: Start, saved_models: Path, tmp_path: Path) -> None:
    """Two models side by side, each listed once; ping is answered meanwhile; one that has gone can come again."""
    many = Served(stacks("many"))
    url = str(archives(saved_models, tmp_path) / "plain.tar.gz")

    def load(name: str) -> int:
        return many.running.ask("POST", "/models", json.dumps({"model_name": name, "url": url}), JSON).status

    def statuses(name: str) -> list[int]:
        invoked = many.running.ask("POST", f"/models/{name}/invoke", many.body, JSON)
        return [many.running.ask("GET", f"/models/{name}").status, invoked.status]

    def unload(name: str) -> int:
        return many.running.ask("DELETE", f"/models/{name}").status

    with ThreadPoolExecutor(2) as pool:
        loads = [pool.submit(load, name) for name in NAMES]
        while not all(each.done() for each in loads):
            many.ping()
    assert [each.result() for each in loads] == [200, 200]
    listed = many.running.ask("GET", "/models").json
    assert listed == {"models": [{"modelName": name, "modelUrl": url} for name in NAMES]}
    assert [statuses(name) for name in NAMES] == [[200, 200]] * 2
    assert [unload(NAMES[0]), statuses(NAMES[0])] == [200, [404, 404]]
    assert many.running.ask("GET", "/models").json == {"models": listed["models"][1:]}
    assert load(NAMES[0]) == 200
    assert [unload(name) for name in NAMES] == [200, 200]
