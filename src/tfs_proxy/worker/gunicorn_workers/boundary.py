"""Beginning and end of a worker's request, between gunicorn and the app, in every class of workers.

Here a request gets its record and id, is noted as begun, and may be answered by its deadline;
`RequestObserver`s see its end. nginx can't tell a request that a worker had begun from one that it had not
read: the connection of both breaks. So it names each request, and sends such a one once more, marked: that is
handled unless it was begun.
"""

import json
import logging
import select
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from typing import Any, Protocol, Self

from msgspec import Struct

from tfs_proxy.observe.begun_requests import BegunRequests
from tfs_proxy.observe.logs.reasons import note_refusal
from tfs_proxy.observe.request_record import (
    SERVER_TIMING,
    WAIT,
    WRITE,
    RequestRecord,
    chosen_id,
    server_timing,
    set_current_request,
)
from tfs_proxy.serving.script.deadline import WITHIN_ANOTHER, DeadlineWatch
from tfs_proxy.serving.script.health import ScriptHealth
from tfs_proxy.serving.upstream.recovery import sent_before
from tfs_proxy.wire.connect import ESTABLISHED
from tfs_proxy.wire.error_body import WORKER_DIED, error_body
from tfs_proxy.wire.error_status import CLIENT_GONE
from tfs_proxy.wire.header_names import (
    AGAIN,
    ASKS_TIMING,
    DECODED,
    INFERENCE_ID,
    NGINX_ID,
    REQUEST_ID,
    SENT,
    wsgi_name,
)
from tfs_proxy.wire.media_types import JSON
from tfs_proxy.worker.gunicorn_workers.refusals import Refusal, refusal

log = logging.getLogger(__name__)

SOCKET = "gunicorn.socket"
HALF_A_TICK_SECONDS = 0.0005
"""Average error of nginx's times, which are cut to milliseconds."""

_LAST_DATA_RECEIVED = struct.Struct("=52xI")
"""Field ``tcpi_last_data_recv`` of Linux's ``struct tcp_info``: milliseconds since the last bytes came."""

_ASKS_TIMING, _INFERENCE_ID, _CLIENT_ID = map(wsgi_name, (ASKS_TIMING, INFERENCE_ID, REQUEST_ID))
_NOTED = wsgi_name(NGINX_ID)
_ID_FIELD = REQUEST_ID.lower()

_HANGS_UP = getattr(select, "POLLRDHUP", 0)  # Linux has it; a peek would not look beyond unread bytes
_poll = select.poll  # the system's own, also where gevent replaces it later

_ENDING = threading.Lock()
"""Held while a request is marked as ended: its thread and its deadline may do so at once."""

WsgiApp = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]
HeadersForNginx = Callable[[RequestRecord], Sequence[tuple[str, str]]]


class RequestObserver(Protocol):
    """Observer of requests; its exceptions are logged, and change no answer.

    One with a method ``begin`` gets each record, and the environ, before the application: `current_request`.
    It may return an `AnswerObserver`.
    """

    def note_end(self, record: RequestRecord) -> None:
        """Note the end of a request, in any thread: its answer is sent, or its client is gone."""


class AnswerObserver(Protocol):
    """Observer of one request's answer."""

    def start(self, status: str, headers: Sequence[tuple[str, str]]) -> None:
        """Note the start, as the application makes it."""

    def note_piece(self, piece: bytes) -> None:
        """Note a piece that is about to be sent."""

    def end(self, *, is_whole: bool) -> None:
        """Note the end of an answer, all of which has been sent, or that has broken off."""


class WorkerApp(Protocol):
    """Application of a worker, which gunicorn calls by WSGI."""

    watch: DeadlineWatch
    """Watch over calls of the script that take too long."""

    known: Container[str]
    """Names of the models by which requests are counted."""

    first_call: threading.Thread | None = None
    """Thread of the calls before the first request, from a model's recorded ones; None without any."""

    health: ScriptHealth | None = None
    """Watch over the script's own health; None if it tells nothing of it."""

    def close(self) -> None:
        """Close the application after its last request; idempotent."""


class NotLoaded(WorkerApp):
    """Application of a worker that has none yet."""

    watch = DeadlineWatch()
    known = ()

    def close(self) -> None:
        """Do nothing: there is nothing to close."""


class FromNginx(Struct, frozen=True):
    """Words of nginx about a request, in a header of its own; empty without nginx."""

    id: str
    """Id under which the request is noted as begun."""

    sent_at: float | None
    """Time at which nginx sent it here, in seconds since 1970."""

    before: str
    """`AGAIN` or `SENT` if someone had the request before."""

    @classmethod
    def read(cls, environ: dict[str, Any]) -> Self:
        """Take the header out of a request's environ."""
        nginx_id, _, rest = environ.pop(_NOTED, "").partition(" ")
        sent_at, _, before = rest.partition(" ")
        return cls(nginx_id, float(sent_at) if sent_at else None, before)


class RequestBoundary:
    """Wrapper of ``app``: WSGI, with an `Exchange` for each request.

    Behind nginx, which gets ``headers_for_nginx``, a request comes with its words; without it they are None.
    """

    def __init__(
        self,
        app: WsgiApp,
        begun: BegunRequests,
        watch: DeadlineWatch,
        observers: Sequence[RequestObserver],
        *,
        headers_for_nginx: HeadersForNginx | None = None,
    ) -> None:
        self.begun = begun
        self.observers = observers
        self.headers_for_nginx = headers_for_nginx
        self._app = app
        self._watch = watch
        self._begin_observers = [observer for observer in observers if hasattr(observer, "begin")]

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        request_id = None
        if self.headers_for_nginx is None:
            environ.pop(_NOTED, None)  # it comes from a client
        else:
            request_id = environ.get(_CLIENT_ID)  # nginx has chosen it already
        said = FromNginx.read(environ)
        if not request_id:
            request_id = chosen_id(environ.get(_INFERENCE_ID), environ.get(_CLIENT_ID))
            environ[_CLIENT_ID] = request_id
        target = environ.get("RAW_URI") or environ["PATH_INFO"]
        record = RequestRecord(request_id, environ["REQUEST_METHOD"], target)
        # Both include the time in the accept queue, and until a thread was free.
        if said.sent_at is None:
            record.seconds[WAIT] = since_last_data(environ.get(SOCKET))
        else:
            # nginx's clock moves once for each round of its loop, in whole milliseconds.
            record.seconds[WAIT] = max(time.time() - said.sent_at - HALF_A_TICK_SECONDS, 0.0)
        record.seen = record.began - record.seconds[WAIT]
        record.hung_up = partial(has_hung_up, environ.get(SOCKET), environ.get("SERVER_PROTOCOL"))
        set_current_request(record)
        app = self._app_for(record, said)
        exchange = Exchange(self, record, environ, start_response, self.begun.begin(said.id))
        self._watch.serve(exchange)
        try:
            for observer in self._begin_observers:
                try:
                    of_answer = observer.begin(record, environ)
                    if of_answer is not None:
                        exchange.observers.append(of_answer)
                except Exception:
                    log.exception("%s failed as a request began", type(observer).__name__)
            with sent_before() if said.before == SENT else WITHIN_ANOTHER:
                exchange.pieces = app(environ, exchange.start)
        except BaseException as error:
            exchange.fail(error)
            raise
        return exchange

    def _app_for(self, record: RequestRecord, said: FromNginx) -> WsgiApp:
        """Application for a request, or what answers in its place if it is not to begin."""
        if said.before == AGAIN and self.begun.has(said.id):
            return partial(refuse, "502 Bad Gateway", WORKER_DIED)
        if record.lost_in(WAIT):
            return partial(refuse, f"{CLIENT_GONE} Client Closed Request", record.gone)
        return self._app


def since_last_data(connection: object) -> float:
    """Seconds since the last bytes came on a TCP connection, read or not; 0 on other systems than Linux."""
    if sys.platform != "linux" or not isinstance(connection, socket.socket):
        return 0.0
    with suppress(OSError, struct.error):
        info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _LAST_DATA_RECEIVED.size)
        return float(_LAST_DATA_RECEIVED.unpack(info)[0]) / 1000
    return 0.0


def has_hung_up(connection: socket.socket | None, protocol: str | None) -> bool:
    """True if the other end has closed a connection; nginx does so if its client has.

    A client that has only ended its own side has gone, too, unless it speaks HTTP/1.0.
    """
    if connection is None:
        return False
    with suppress(AttributeError, OSError):  # PERF: a poll lets all threads run that want to
        if connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, len(ESTABLISHED)) == ESTABLISHED:
            return False
    poller = _poll()
    try:
        poller.register(connection, 0 if protocol == "HTTP/1.0" else _HANGS_UP)
    except ValueError:  # it is closed here, too
        return True
    return bool(poller.poll(0))


def refuse(
    status: str, reason: str, _environ: dict[str, Any], start_response: Callable[..., Any]
) -> list[bytes]:
    """Answer with an error in place of an application."""
    note_refusal(reason)
    body = error_body(reason)
    start_response(status, [("Content-Type", JSON), ("Content-Length", str(len(body)))])
    return [body]


class Exchange:
    """One request and its answer: the start, the ``pieces``, and the end, which is told once."""

    __slots__ = (
        "_boundary",
        "_connection",
        "_ended",
        "_is_whole",
        "_iterator",
        "_note",
        "_shows_timing",
        "_start_response",
        "_writing_since",
        "observers",
        "pieces",
        "record",
    )

    def __init__(
        self,
        boundary: RequestBoundary,
        record: RequestRecord,
        environ: dict[str, Any],
        start_response: Callable[..., Any],
        note: int,
    ) -> None:
        self.record = record
        self.pieces: Iterable[bytes] = ()
        self.observers: list[AnswerObserver] = []
        self._boundary = boundary
        self._start_response = start_response
        self._note = note
        self._connection: socket.socket | None = environ.get(SOCKET)
        self._shows_timing = _ASKS_TIMING in environ
        self._iterator: Iterator[bytes] = iter(())
        self._ended = False
        self._is_whole = False
        self._writing_since = 0.0

    def start(self, status: str, headers: list[tuple[str, str]], *exc_info: Any) -> Any:
        """Start the answer as WSGI's ``start_response``; sets the request's id, whatever a script set."""
        self.record.status = CLIENT_GONE if self.record.lost_in(WRITE) else int(status[:3])
        for observer in self.observers:
            observer.start(status, headers)
        for name, value in headers:
            if value == "close" and name.lower() == "connection":  # which gunicorn itself drops
                response = getattr(self._start_response, "__self__", None)
                if response is not None:
                    response.force_close()
        if self._boundary.headers_for_nginx is None:  # nginx writes the id itself
            others = (header for header in headers if header[0].lower() != _ID_FIELD)
            headers = [(REQUEST_ID, self.record.request_id), *others]
        else:
            headers = [*headers, *self._boundary.headers_for_nginx(self.record)]
        if self._shows_timing:
            headers = [*headers, (SERVER_TIMING, server_timing(self.record))]
            if self.record.decoded is not None:
                headers = [*headers, (DECODED, json.dumps(self.record.decoded))]
        return self._start_response(status, headers, *exc_info)

    def __iter__(self) -> Iterator[bytes]:
        pieces = self.pieces
        if isinstance(pieces, list) and not self.observers:  # all pieces are made already
            self.record.bytes_out = sum(map(len, pieces))
            self._writing_since = time.perf_counter()
            return iter(pieces)
        self._iterator = iter(pieces)
        return self

    def __next__(self) -> bytes:
        set_current_request(self.record)  # a server may make each piece on any of its threads
        self._end_writing()
        piece = next(self._iterator, None)
        if piece is None:
            self._is_whole = True
            raise StopIteration
        for observer in self.observers:
            observer.note_piece(piece)
        self.record.bytes_out += len(piece)
        self._writing_since = time.perf_counter()
        return piece

    def close(self) -> None:
        """End the request; the server calls it once the answer is sent, or can't be sent."""
        try:
            self._end_writing()
            self._end_observers()
            if hasattr(self.pieces, "close"):
                set_current_request(self.record)  # a script's generator may run
                self.pieces.close()
        finally:
            self.note_end()
            set_current_request(None)

    def fail(self, error: BaseException) -> None:
        """End a request for which the application made no answer; gunicorn's own handler sends one."""
        gone = isinstance(error, OSError)
        refused = refusal(error)
        self.record.status, self.record.reason = (CLIENT_GONE, "") if gone else (refused.status, refused.text)
        self._end_observers()
        self.note_end()
        if gone:
            set_current_request(None)

    def answer_late(self, text: str, *, streaming: bool) -> None:
        """Answer in place of a call that goes on; a streamed answer, whose head was sent, breaks off."""
        with suppress(OSError):
            if self._connection is not None and not streaming:
                refused = Refusal(HTTPStatus.GATEWAY_TIMEOUT, text).response(self.record.request_id)
                self._connection.send(refused, socket.MSG_DONTWAIT)
            if self._connection is not None:
                self._connection.shutdown(socket.SHUT_RDWR if streaming else socket.SHUT_WR)
        self.record.status = self.record.status or HTTPStatus.GATEWAY_TIMEOUT
        self.record.reason = text
        self.note_end()

    def note_end(self) -> None:
        """Note the end, and tell observers; nothing if that was done."""
        with _ENDING:
            if self._ended:
                return
            self._ended = True
        self._boundary.begun.end(self._note)
        for observer in self._boundary.observers:
            try:
                observer.note_end(self.record)
            except Exception:
                log.exception("%s failed as a request ended", type(observer).__name__)

    def _end_observers(self) -> None:
        for observer in self.observers:
            observer.end(is_whole=self._is_whole)

    def _end_writing(self) -> None:
        if self._writing_since:
            self.record.seconds[WRITE] += time.perf_counter() - self._writing_since
            self._writing_since = 0.0
