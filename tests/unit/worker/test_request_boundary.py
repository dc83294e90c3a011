"""The boundary of each request: its id, its note, its observers."""

import errno
import os
import socket
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from support.waiting import wait_until
from tfs_proxy.observe.begun_requests import BegunRequests, under_way
from tfs_proxy.observe.request_record import WAIT, RequestRecord, current_request
from tfs_proxy.serving.script.deadline import DeadlineWatch
from tfs_proxy.wire import header_names
from tfs_proxy.wire.error_status import CLIENT_GONE
from tfs_proxy.worker.gunicorn_workers.boundary import Exchange, RequestBoundary, WsgiApp, since_last_data

ONE = "1" * 32
Headers = list[tuple[str, str]]
CLIENT_ID = header_names.wsgi_name(header_names.REQUEST_ID)
REQUEST = header_names.wsgi_name(header_names.NGINX_ID)


class Response:
    """A fake of gunicorn's response."""

    def __init__(self) -> None:
        self.closed = False
        self.status = ""
        self.headers: Headers = []

    def force_close(self) -> None:
        self.closed = True

    def start_response(self, status: str, headers: Headers) -> None:
        self.status, self.headers = status, headers


class Noting:
    """An observer that notes its calls, and keeps the records of requests that have ended."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str, int]] = []
        self.records: list[RequestRecord] = []

    def begin(self, record: RequestRecord, environ: dict[str, Any]) -> None:
        assert current_request() is record
        self.told.append(("begin", environ["PATH_INFO"], record.status))

    def note_end(self, record: RequestRecord) -> None:
        self.told.append(("end", record.target, record.status))
        self.records.append(record)


class Failing:
    """An observer that always fails."""

    def begin(self, record: RequestRecord, environ: dict[str, Any]) -> None:
        raise ValueError(record, environ)

    def note_end(self, record: RequestRecord) -> None:
        raise ValueError(record)


@pytest.fixture
def bound(tmp_path: Path) -> Callable[..., RequestBoundary]:
    """Make a boundary of an application, with notes for two requests at once."""

    def make(app: WsgiApp, *observers: Any, behind_nginx: bool = False) -> RequestBoundary:
        notes, headers = BegunRequests(tmp_path / "begun", 2), (lambda _record: ()) if behind_nginx else None
        return RequestBoundary(app, notes, DeadlineWatch(), list(observers), headers_for_nginx=headers)

    return make


def ask(app: WsgiApp, **headers: Any) -> tuple[Response, bytes]:
    response = Response()
    pieces = app({"REQUEST_METHOD": "GET", "PATH_INFO": "/x", **headers}, response.start_response)
    try:
        body = b"".join(pieces)
    finally:
        if hasattr(pieces, "close"):
            pieces.close()
    return response, body


def echo(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    """Answer with the ids in three places."""
    record = current_request()
    assert record is not None
    start_response("200 OK", [("X-Request-Id", "the script's"), ("A", "b")])
    return [f"{record.request_id} {environ[CLIENT_ID]}".encode()]


def fail(_environ: dict[str, Any], _start_response: Callable[..., Any]) -> Iterable[bytes]:
    """Fail as if the client had gone."""
    raise OSError("broken")


def stream(_environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterator[bytes]:
    """Answer in pieces, each with the id of the request."""
    start_response("200 OK", [])
    for _ in range(2):
        record = current_request()
        yield b"none" if record is None else record.request_id.encode()


def test_the_pieces_of_a_stream_are_made_in_their_request(bound: Callable[..., RequestBoundary]) -> None:
    app = bound(stream)
    first = app({"REQUEST_METHOD": "GET", "PATH_INFO": "/x", CLIENT_ID: "a"}, Response().start_response)
    pieces = iter(first)

    assert next(pieces) == b"a"
    assert ask(app, **{CLIENT_ID: "b"})[1] == b"bb"
    assert next(pieces) == b"a"
    first.close()  # type: ignore[attr-defined]
    assert current_request() is None


@pytest.mark.parametrize(("app", "status"), [(echo, 200), (stream, 200), (fail, CLIENT_GONE)])
def test_observers_see_each_request_begin_and_end(
    bound: Callable[..., RequestBoundary], tmp_path: Path, app: WsgiApp, status: int
) -> None:
    noting = Noting()
    boundary = bound(app, Failing(), noting)
    try:
        ask(boundary)
    except OSError:
        assert app is fail

    assert noting.told == [("begin", "/x", 0), ("end", "/x", status)]
    assert begun(tmp_path) == 0


def test_a_request_that_is_answered_late_has_ended(
    bound: Callable[..., RequestBoundary], tmp_path: Path
) -> None:
    """By 504 on its connection; what its call does then is told to nobody."""
    noting = Noting()
    served: list[Exchange] = []

    def late(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        served[0].answer_late("too late", streaming=False)
        assert begun(tmp_path) == 0
        return echo(environ, start_response)

    boundary = bound(late, noting)
    mine, theirs = socket.socketpair()
    with mine, theirs, pytest.MonkeyPatch.context() as patch:
        patch.setattr(DeadlineWatch, "serve", lambda _watch, exchange: served.append(exchange))
        ask(boundary, **{"gunicorn.socket": mine})
        answer = theirs.recv(10_000)

    assert answer.startswith(b"HTTP/1.1 504 ")
    assert b"too late" in answer
    assert noting.told == [("begin", "/x", 0), ("end", "/x", 504)]


def test_without_nginx_its_headers_are_a_client_s_own(bound: Callable[..., RequestBoundary]) -> None:
    response, body = ask(bound(echo), **{REQUEST: f"{ONE} 0 again", CLIENT_ID: "of-the-client"})

    assert (response.status, body) == ("200 OK", b"of-the-client of-the-client")
    assert response.headers == [("X-Request-Id", "of-the-client"), ("A", "b")]


@pytest.mark.skipif(not hasattr(socket, "TCP_INFO"), reason="only Linux tells")
def test_without_nginx_a_request_has_waited_since_its_last_bytes_came() -> None:
    """As the kernel says of its connection, read or not."""
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


def test_behind_nginx_a_request_has_waited_since_nginx_sent_it(bound: Callable[..., RequestBoundary]) -> None:
    """A client can't claim that of itself."""
    sent_at = f"{time.time() - 6:.3f}"
    noting = Noting()
    for boundary in (bound(echo, noting, behind_nginx=True), bound(echo, noting)):
        ask(boundary, HTTP_X_TFS_PROXY_REQUEST=f"{'1' * 32} {sent_at}")

    behind, alone = (record.seconds[WAIT] for record in noting.records)
    assert 5 <= behind < 600
    assert alone == 0


def begun(tmp_path: Path) -> int:
    """Requests of this process that are under way."""
    return under_way(tmp_path / "begun" / str(os.getpid()))


def test_a_file_that_can_not_be_written_is_a_problem_until_it_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Meanwhile requests are noted in memory, which the file then has."""

    def full(_descriptor: int, _offset: int, _size: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as no_room:
        no_room.setattr("os.posix_fallocate", full)
        notes = BegunRequests(tmp_path / "begun", 2)
        place = notes.begin(ONE)
        assert notes.problem() == "a worker's file in begun can't be written: No space left on device"

    assert (notes.problem(), begun(tmp_path)) == ("", 1)
    notes.end(place)
    assert begun(tmp_path) == 0
