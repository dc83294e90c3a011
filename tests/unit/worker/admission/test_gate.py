"""Admission by the adaptive limit, as WSGI servers call it."""

import io
import json
import logging
import socket
import threading
from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from support.waiting import wait_until
from tfs_proxy.worker.gunicorn_workers.admission import AdmissionGate, since_last_data

Started = list[tuple[str, dict[str, str]]]


class SlowApp:
    """An application whose answers wait for ``go_on``; ``running`` counts those that have begun."""

    def __init__(self) -> None:
        self.go_on = threading.Event()
        self.running = 0

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        self.running += 1
        assert self.go_on.wait(10)
        start_response("200 OK", [])
        return [b"answer"]


def environ(path: str = "/invocations", method: str = "POST", body: bytes = b"{}") -> dict[str, Any]:
    return {
        "REQUEST_METHOD": method,
        "PATH_INFO": path,
        "CONTENT_LENGTH": str(len(body)),
        "wsgi.input": io.BytesIO(body),
    }


def call(gate: AdmissionGate, request: dict[str, Any], started: Started | None = None) -> bytes:
    """The body of the answer; ``started`` gets status and headers."""
    log: Started = [] if started is None else started
    pieces = gate(request, lambda status, headers: log.append((status, dict(headers))))
    body = b"".join(pieces)
    if hasattr(pieces, "close"):
        pieces.close()
    return body


@pytest.fixture
def busy() -> Iterator[tuple[AdmissionGate, SlowApp]]:
    """A gate whose only place is taken for as long as the test lasts."""
    app = SlowApp()
    gate = AdmissionGate(app, target_seconds=0.02)
    thread = threading.Thread(target=call, args=(gate, environ()))
    thread.start()
    wait_until(lambda: app.running == 1, 10, "the request runs")
    yield gate, app
    app.go_on.set()
    thread.join()


def test_a_request_that_can_not_be_answered_in_time_is_refused(busy: tuple[AdmissionGate, SlowApp]) -> None:
    started: Started = []
    request = environ(body=b"[1, 2]")
    body = call(busy[0], request, started)
    assert started[0][0] == "503 Service Unavailable"
    assert int(started[0][1]["Retry-After"]) >= 1
    assert "Connection" not in started[0][1]
    assert "try again" in json.loads(body)["error"]
    assert request["wsgi.input"].read() == b""


def test_a_long_body_is_not_read_to_be_refused(busy: tuple[AdmissionGate, SlowApp]) -> None:
    """The connection ends instead."""
    started: Started = []
    call(busy[0], environ() | {"CONTENT_LENGTH": "100000000"}, started)
    assert started[0][1]["Connection"] == "close"


@pytest.mark.parametrize(
    ("method", "path"),
    [
        *(("GET", path) for path in ("/ping", "/metrics", "/v2/health/ready", "/models", "/v1/models/m")),
        *(("POST", path) for path in ("/models", "/v2/repository/models/m/load")),
        ("DELETE", "/models/m"),
    ],
)
def test_only_inferences_are_refused(busy: tuple[AdmissionGate, SlowApp], method: str, path: str) -> None:
    """Probes, metrics and management pass whatever the load."""
    gate, app = busy
    app.go_on.set()
    assert call(gate, environ(path, method)) == b"answer"


def test_refusals_have_one_line_a_second_at_most(
    busy: tuple[AdmissionGate, SlowApp], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        for _ in range(20):
            call(busy[0], environ())
    lines = [record for record in caplog.records if "refused" in record.message]
    assert 1 <= len(lines) <= 3
    assert not any(line.exc_info for line in lines)


def test_a_stream_counts_until_its_first_byte() -> None:
    gate = AdmissionGate(lambda _environ, start: iter((b"first", b"second")), target_seconds=0.02)
    pieces = iter(gate(environ(), lambda *_: None))
    assert next(pieces) == b"first"
    assert next(iter(gate(environ(), lambda *_: None))) == b"first"
    assert next(pieces) == b"second"


def test_an_application_that_raises_gives_its_place_back() -> None:
    def fails(_environ: dict[str, Any], _start: Any) -> Iterable[bytes]:
        raise RuntimeError("broken")

    gate = AdmissionGate(fails, target_seconds=0.02)
    for _ in range(3):
        with pytest.raises(RuntimeError, match="broken"):
            gate(environ(), lambda *_: None)


def test_a_target_that_one_request_alone_exceeds_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    now = 0.0

    def slow(_environ: dict[str, Any], start: Any) -> Iterable[bytes]:
        nonlocal now
        now += 0.2
        start("200 OK", [])
        return [b"late"]

    gate = AdmissionGate(slow, target_seconds=0.05, clock=lambda: now)
    assert [call(gate, environ()) for _ in range(5)] == [b"late"] * 5
    warnings = [record.message for record in caplog.records]
    assert len(warnings) == 1
    assert "200 ms" in warnings[0]
    assert "TFS_PROXY_ADAPTIVE_LIMIT=50ms" in warnings[0]


@pytest.mark.skipif(not hasattr(socket, "TCP_INFO"), reason="only Linux tells")
def test_the_age_of_what_waits_on_a_connection_is_known() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        socket.create_connection(listener.getsockname()) as client,
    ):
        server, _ = listener.accept()
        with server:
            client.send(b"x")
            wait_until(lambda: since_last_data(server) >= 0.2, 10, "the byte is old")
            client.send(b"y")
            wait_until(lambda: since_last_data(server) < 0.2, 10, "a new byte came")
    with socket.socket(socket.AF_UNIX) as unix:
        assert since_last_data(unix) == 0.0
