"""Admission of requests to the application: runs an inference now, soon, or refuses it.

It is inside of `boundary`, so that refusals are counted and logged as all answers are.
"""

import logging
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from http import HTTPStatus
from typing import Any

from tfs_proxy.observe.request_record import WAIT, RequestRecord, current_request
from tfs_proxy.values.errors import OverLimit
from tfs_proxy.wire.error_body import error_body
from tfs_proxy.wire.error_status import status_of_error
from tfs_proxy.wire.media_types import JSON
from tfs_proxy.wire.routes import is_inference
from tfs_proxy.worker.gunicorn_workers.adaptive_limit import AdaptiveLimit, AdmissionQueue, Turn, TurnState
from tfs_proxy.worker.gunicorn_workers.journal import WsgiApp
from tfs_proxy.worker.gunicorn_workers.late_calls import SOCKET


class RareLines:
    """Counter of events between lines that are at least so many seconds apart."""

    def __init__(self, seconds: float, clock: Callable[[], float]) -> None:
        self._seconds = seconds
        self._clock = clock
        self._lock = threading.Lock()
        self._unsaid = 0
        self._next_line = float("-inf")

    def count(self) -> int:
        """Count one event; returns how many a line written now is for, 0 if it is too early for one."""
        with self._lock:
            self._unsaid += 1
            now = self._clock()
            if now < self._next_line:
                return 0
            self._next_line = now + self._seconds
            unsaid, self._unsaid = self._unsaid, 0
            return unsaid


_LAST_DATA_RECEIVED = struct.Struct("=52xI")
"""Field ``tcpi_last_data_recv`` of Linux's ``struct tcp_info``: milliseconds since the last bytes came."""

_MILLISECOND = 0.001


def seconds_waited(environ: dict[str, Any], record: RequestRecord | None, *, behind_nginx: bool) -> float:
    """Seconds since nginx sent the request on, or since its last bytes came from the client; 0 if unknown.

    Both include the time in the accept queue and until a thread was free.
    """
    if behind_nginx:
        return 0.0 if record is None else record.seconds[WAIT]
    return since_last_data(environ.get(SOCKET))


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
    return milliseconds * _MILLISECOND


log = logging.getLogger(__name__)

RETRY_SECONDS = 1
"""Value of Retry-After in whole seconds; a limit that targets milliseconds has room again long before."""

READ_AWAY_BYTES = 1024 * 1024
"""Largest body of a refused request that is read, so that its connection can take the next request."""

WARNING_SECONDS, REFUSAL_LINE_SECONDS = 60.0, 1.0


class AdmissionGate:
    """Wrapper of ``app`` that allows as many inferences at once as `AdaptiveLimit`; other requests pass."""

    def __init__(
        self,
        app: WsgiApp,
        target_seconds: float,
        *,
        behind_nginx: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._app = app
        self._behind_nginx = behind_nginx
        self._clock = clock
        self._limit = AdaptiveLimit(target_seconds)
        self._turns = AdmissionQueue(self._limit)
        self._lock = threading.Lock()
        self._decided: dict[Turn, threading.Event] = {}
        self._refusals = RareLines(REFUSAL_LINE_SECONDS, clock)
        self._warnings = RareLines(WARNING_SECONDS, clock)

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        if environ["REQUEST_METHOD"] != "POST" or not is_inference(environ["PATH_INFO"]):
            return self._app(environ, start_response)
        waited = seconds_waited(environ, current_request(), behind_nginx=self._behind_nginx)
        turn = self._take_in(waited)
        if turn.state is TurnState.REFUSED:
            return self._refuse(environ, start_response)
        try:
            pieces = self._app(environ, start_response)
        except BaseException:
            self._end(turn)
            raise
        if isinstance(pieces, list):
            self._end(turn)
            return pieces
        return UntilFirstByte(pieces, lambda: self._end(turn))

    @property
    def most(self) -> int:
        return self._limit.most

    def _take_in(self, waited_seconds: float) -> Turn:
        with self._lock:
            now = self._clock()
            turn = self._turns.enter(now - waited_seconds, now)
            if turn.state is not TurnState.WAITS:
                return turn
            decided = self._decided[turn] = threading.Event()
        decided.wait(turn.latest_start - now)
        with self._lock:
            del self._decided[turn]
            self._turns.give_up(turn)
        return turn

    def _end(self, turn: Turn) -> None:
        record = current_request()
        status = HTTPStatus.OK if record is None else record.status
        # Refusals of malformed requests take no time, and would lower the measured times of answers.
        is_answer = not HTTPStatus.BAD_REQUEST <= status < HTTPStatus.INTERNAL_SERVER_ERROR
        with self._lock:
            now = self._clock()
            for decided in self._turns.leave(turn, now, learn=is_answer):
                self._decided[decided].set()
        if turn.alone and now - turn.began > self._limit.target_seconds:
            self._warn(now - turn.began)

    def _warn(self, seconds: float) -> None:
        if self._warnings.count():
            log.warning(
                "a request that ran alone in its worker took %.0f ms, more than "
                "TFS_PROXY_ADAPTIVE_LIMIT=%gms: no limit can keep this target",
                seconds * 1000,
                self._limit.target_seconds * 1000,
            )

    def _refuse(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> list[bytes]:
        record = current_request()
        if record is not None:
            record.over_limit = True
        count = self._refusals.count()
        if count:
            log.warning(
                "refused %d requests with 503: %d at once are what TFS_PROXY_ADAPTIVE_LIMIT=%gms allows",
                count,
                self._limit.most,
                self._limit.target_seconds * 1000,
            )
        error = OverLimit("too many requests are under way to answer this one in time: try again")
        body = error_body(str(error))
        headers = [
            ("Content-Type", JSON),
            ("Content-Length", str(len(body))),
            ("Retry-After", str(RETRY_SECONDS)),
        ]
        if not self._read_away(environ):
            headers.append(("Connection", "close"))
        status = HTTPStatus(status_of_error(error))
        start_response(f"{status.value} {status.phrase}", headers)
        return [body]

    def _read_away(self, environ: dict[str, Any]) -> bool:
        """Read the body; False for a long one, or one of unknown length, which might take too long."""
        length = environ.get("CONTENT_LENGTH") or ""
        if not length.isdecimal() or int(length) > READ_AWAY_BYTES:
            return False
        return len(environ["wsgi.input"].read(int(length))) == int(length)


class UntilFirstByte:
    """Pieces of an answer; ``ended`` is called once the first is there, or there is none."""

    def __init__(self, pieces: Iterable[bytes], ended: Callable[[], None]) -> None:
        self._pieces = pieces
        self._iterator: Iterator[bytes] | None = None
        self._ended: Callable[[], None] | None = ended

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        try:
            if self._iterator is None:
                self._iterator = iter(self._pieces)
            return next(self._iterator)
        finally:
            self._end()

    def close(self) -> None:
        self._end()
        if hasattr(self._pieces, "close"):
            self._pieces.close()

    def _end(self) -> None:
        ended, self._ended = self._ended, None
        if ended is not None:
            ended()
