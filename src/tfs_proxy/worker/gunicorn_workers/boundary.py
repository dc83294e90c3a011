"""Beginning and end of a worker's request, between gunicorn and the app, in every class of workers.

One wrapper does for each request what is not the application's: its record and id, its note in the journal,
the connection that the deadline watch answers on, and `RequestObserver`s.
"""

import json
import logging
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from http import HTTPStatus
from typing import Any, Protocol, runtime_checkable

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
from tfs_proxy.serving.upstream.recovery import sent_before
from tfs_proxy.wire.error_status import CLIENT_GONE
from tfs_proxy.wire.header_names import ASKS_TIMING, DECODED, INFERENCE_ID, REQUEST_ID, wsgi_name
from tfs_proxy.worker.gunicorn_workers.journal import (
    AGAIN,
    REQUEST,
    SENT,
    SOCKET,
    RequestJournal,
    WsgiApp,
    worker_died,
)
from tfs_proxy.worker.gunicorn_workers.refusals import refusal

log = logging.getLogger(__name__)

HALF_A_TICK_SECONDS = 0.0005
"""Average error of nginx's times, which are cut to milliseconds."""

_LAST_DATA_RECEIVED = struct.Struct("=52xI")
"""Field ``tcpi_last_data_recv`` of Linux's ``struct tcp_info``: milliseconds since the last bytes came."""

NOTHING: Iterator[bytes] = iter(())
MoreHeaders = Callable[[RequestRecord], Sequence[tuple[str, str]]]

_ASKS_TIMING, _INFERENCE_ID, _CLIENT_ID = map(wsgi_name, (ASKS_TIMING, INFERENCE_ID, REQUEST_ID))
_ID_FIELD = REQUEST_ID.lower()


class RequestObserver(Protocol):
    """Observer of requests; its exceptions are logged, and change no answer."""

    def end(self, record: RequestRecord) -> None:
        """Note the end of a request, in any thread: its answer is sent, or its client is gone."""


@runtime_checkable
class BeginObserver(RequestObserver, Protocol):
    """Observer that is called at the beginning of each request, too."""

    def begin(self, record: RequestRecord, environ: dict[str, Any]) -> None:
        """Note a request before the application gets it; `current_request` is ``record``."""


class RequestBoundary:
    """Wrapper of ``app`` for everything that must know the beginning and end of each of its requests.

    ``behind_nginx`` a request comes with its id, and with the time at which it was sent here.
    """

    def __init__(
        self,
        app: WsgiApp,
        journal: RequestJournal,
        watch: DeadlineWatch,
        observers: Sequence[RequestObserver],
        *,
        behind_nginx: bool = False,
        more_headers: MoreHeaders | None = None,
    ) -> None:
        self._app = app
        self.behind_nginx = behind_nginx
        self._watch = watch
        self._under_way: dict[int, Answer] = {}
        self.journal = journal
        self.observers = observers
        self._begin_observers = [observer for observer in observers if isinstance(observer, BeginObserver)]
        self.more_headers = more_headers or _no_headers

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        noted, again, had_model_server = (environ.pop(name, "") for name in (REQUEST, AGAIN, SENT))
        if not self.behind_nginx:  # these headers come from a client
            noted = again = had_model_server = ""
        journal_id, _, sent_at = noted.partition(" ")
        died = bool(again) and self.journal.has(journal_id)
        connection = environ.get(SOCKET)
        record = self._record_of(environ, sent_at)
        answer = Answer(self, record, start_response, self.journal.begin(journal_id), id(connection))
        answer.shows_timing = _ASKS_TIMING in environ
        self._under_way[id(connection)] = answer
        self._watch.serve(connection)
        set_current_request(record)
        try:
            if self._begin_observers:
                self._begin(record, environ)
            with sent_before() if had_model_server else WITHIN_ANOTHER:
                answer.pieces = (worker_died if died else self._app)(environ, answer.start)
        except BaseException as error:
            answer.fail(error)
            raise
        return answer

    def record_on(self, connection: object) -> RequestRecord | None:
        """Record of the request that came on a connection and has not ended."""
        answer = self._under_way.get(id(connection))
        return None if answer is None else answer.record

    def give_up(self, connection: object, reason: str) -> None:
        """End a request that has been answered, with this reason, without the call that still handles it."""
        answer = self._under_way.get(id(connection))
        if answer is not None:
            answer.record.status = answer.record.status or HTTPStatus.GATEWAY_TIMEOUT
            answer.record.reason = reason
            answer.end()

    def forget(self, connection: int) -> None:
        """Forget a connection: no request is in flight on it any more."""
        self._under_way.pop(connection, None)

    def _record_of(self, environ: dict[str, Any], sent_at: str) -> RequestRecord:
        """Make a record; the application gets the same id with nginx and without it."""
        # nginx has chosen the id already.
        request_id = environ.get(_CLIENT_ID) if self.behind_nginx else None
        if not request_id:
            request_id = chosen_id(environ.get(_INFERENCE_ID), environ.get(_CLIENT_ID))
            environ[_CLIENT_ID] = request_id
        target = environ.get("RAW_URI") or environ["PATH_INFO"]
        record = RequestRecord(request_id, environ["REQUEST_METHOD"], target)
        # Both include the time in the accept queue, and until a thread was free.
        if not self.behind_nginx:
            record.seconds[WAIT] = since_last_data(environ.get(SOCKET))
        elif sent_at:
            # nginx's clock moves once for each round of its loop, in whole milliseconds.
            record.seconds[WAIT] = max(time.time() - float(sent_at) - HALF_A_TICK_SECONDS, 0.0)
        return record

    def _begin(self, record: RequestRecord, environ: dict[str, Any]) -> None:
        for observer in self._begin_observers:
            try:
                observer.begin(record, environ)
            except Exception:
                log.exception("%s failed as a request began", type(observer).__name__)


def since_last_data(connection: object) -> float:
    """Seconds since the last bytes came on a TCP connection, read or not; 0 on other systems than Linux."""
    if not (sys.platform == "linux" and isinstance(connection, socket.socket)):
        return 0.0
    if connection.family == socket.AF_UNIX:
        return 0.0
    try:
        info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _LAST_DATA_RECEIVED.size)
    except OSError:
        return 0.0
    if len(info) < _LAST_DATA_RECEIVED.size:
        return 0.0
    milliseconds: int = _LAST_DATA_RECEIVED.unpack(info)[0]
    return milliseconds / 1000


def _no_headers(_record: RequestRecord) -> Sequence[tuple[str, str]]:
    return ()


class Answer:
    """Answer to one request: its start, its pieces, and its end."""

    __slots__ = (
        "_boundary",
        "_connection",
        "_ending",
        "_iterator",
        "_journal_offset",
        "_start_response",
        "_writing_since",
        "pieces",
        "record",
        "shows_timing",
    )

    def __init__(
        self,
        boundary: RequestBoundary,
        record: RequestRecord,
        start_response: Callable[..., Any],
        journal_offset: int,
        connection: int,
    ) -> None:
        self._boundary = boundary
        self._start_response = start_response
        self._journal_offset = journal_offset
        self._connection = connection
        self._ending = threading.Lock()  # held for good once the request has ended
        self._writing_since = 0.0
        self._iterator: Iterator[bytes] = NOTHING
        self.pieces: Iterable[bytes] = ()
        self.record = record
        self.shows_timing = False

    def start(self, status: str, headers: list[tuple[str, str]], *exc_info: Any) -> Any:
        """Start the answer as WSGI's ``start_response``; sets the request's id, whatever a script set."""
        self.record.status = int(status[:3])
        for name, value in headers:
            if value == "close" and name.lower() == "connection":
                self._close_connection()
        if not self._boundary.behind_nginx:  # nginx writes the id itself
            others = (header for header in headers if header[0].lower() != _ID_FIELD)
            headers = [(REQUEST_ID, self.record.request_id), *others]
        if self.shows_timing:
            headers = [*headers, (SERVER_TIMING, server_timing(self.record))]
            if self.record.decoded is not None:
                headers = [*headers, (DECODED, json.dumps(self.record.decoded))]
        more = self._boundary.more_headers(self.record)
        if more:
            headers = [*headers, *more]
        return self._start_response(status, headers, *exc_info)

    def __iter__(self) -> Iterator[bytes]:
        pieces = self.pieces
        if isinstance(pieces, list):  # all pieces are made already
            self.record.bytes_out = sum(map(len, pieces))
            self._begin_writing()
            return iter(pieces)
        self._iterator = iter(pieces)
        return self

    def __next__(self) -> bytes:
        set_current_request(self.record)  # a server may make each piece on any of its threads
        self._end_writing()
        piece = next(self._iterator)
        self.record.bytes_out += len(piece)
        self._begin_writing()
        return piece

    def close(self) -> None:
        """End the request; the server calls it once the answer is sent, or can't be sent."""
        try:
            self._end_writing()
            if hasattr(self.pieces, "close"):
                set_current_request(self.record)  # a script's generator may run
                self.pieces.close()
        finally:
            self.end()
            set_current_request(None)

    def fail(self, error: BaseException) -> None:
        """End a request for which the application made no answer; gunicorn's own handler sends one."""
        gone = isinstance(error, OSError)
        refused = refusal(error)
        self.record.status, self.record.reason = (CLIENT_GONE, "") if gone else (refused.status, refused.text)
        self.end()
        if gone:
            set_current_request(None)

    def end(self) -> None:
        """Tell journal and observers; idempotent, also if a deadline ends the request at this moment."""
        if not self._ending.acquire(blocking=False):
            return
        self._boundary.journal.end(self._journal_offset)
        self._boundary.forget(self._connection)
        for observer in self._boundary.observers:
            try:
                observer.end(self.record)
            except Exception:
                log.exception("%s failed as a request ended", type(observer).__name__)

    def _close_connection(self) -> None:
        """Close gunicorn's connection after the answer; gunicorn itself drops that header."""
        response = getattr(self._start_response, "__self__", None)
        if response is not None:
            response.force_close()

    def _begin_writing(self) -> None:
        self._writing_since = time.perf_counter()

    def _end_writing(self) -> None:
        if not self._writing_since:
            return
        self.record.seconds[WRITE] += time.perf_counter() - self._writing_since
        self._writing_since = 0.0
