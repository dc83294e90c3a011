"""Counts a worker's requests if there is no nginx to do so: a line for each, in a file that outlives it.

Requests that gunicorn refuses before the application sees them are counted where they are refused.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from http import HTTPStatus
from pathlib import Path
from typing import Any

from tfs_proxy.observe.line_file import LineWriter
from tfs_proxy.observe.request_counts import FinishedRequest, request_line
from tfs_proxy.web.workers.late_calls import SOCKET
from tfs_proxy.web.workers.refusals import OUR_FAULT, OUT_OF_TIME, refusal
from tfs_proxy.web.workers.request_journal import WsgiApp

CLIENT_GONE = 499
"""nginx's status of a request whose client did not wait for the answer."""


class RequestCounting:
    """Writes a line for each request; ``clock`` is in seconds."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.perf_counter) -> None:
        self.clock = clock
        self._file = LineWriter(path)
        self._under_way: dict[int, CountedRequest] = {}

    def begin(self, environ: dict[str, Any]) -> "CountedRequest":
        """Note that a request begins."""
        connection = id(environ.get(SOCKET))
        request = CountedRequest(self, environ, connection)
        self._under_way[connection] = request
        return request

    def end(self, request: "CountedRequest", connection: int) -> None:
        """Write its line."""
        self._under_way.pop(connection, None)
        seconds = self.clock() - request.began
        self.write(FinishedRequest(request.method, request.status, seconds, request.target))

    def give_up(self, connection: object) -> None:
        """Count a request that was answered without the call that still handles it."""
        request = self._under_way.get(id(connection))
        if request is not None:
            request.status = request.status or HTTPStatus.GATEWAY_TIMEOUT
            request.end()

    def write(self, request: FinishedRequest) -> None:
        """Write a request's line."""
        self._file.write(request_line(request))


class CountedRequest:
    """One request, whose line is written once; ``status`` is 0 until the answer begins."""

    __slots__ = ("_connection", "_counting", "_ended", "began", "method", "status", "target")

    def __init__(self, counting: RequestCounting, environ: dict[str, Any], connection: int) -> None:
        self.method = str(environ["REQUEST_METHOD"])
        self.target = str(environ.get("RAW_URI") or environ["PATH_INFO"])
        self.status = 0
        self.began = counting.clock()
        self._counting, self._connection, self._ended = counting, connection, False

    def end(self) -> None:
        """Count it; idempotent."""
        if not self._ended:
            self._ended = True
            self._counting.end(self, self._connection)


def counting_requests(app: WsgiApp, counting: RequestCounting) -> WsgiApp:
    """``app``, whose requests are counted when their answers have ended."""

    def wsgi(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        request = counting.begin(environ)

        def start(status: str, headers: list[tuple[str, str]], *exc_info: Any) -> Any:
            request.status = int(status[:3])
            return start_response(status, headers, *exc_info)

        try:
            return _Counted(app(environ, start), request)
        except BaseException as error:
            if not is_refused_by_gunicorn(error):
                request.status = CLIENT_GONE if isinstance(error, OSError) else int(refusal(error).status)
                request.end()
            raise

    return wsgi


def is_refused_by_gunicorn(error: BaseException) -> bool:
    """Whether gunicorn refuses the request itself, and not the application or what became of its answer."""
    return refusal(error) not in {OUR_FAULT, OUT_OF_TIME}


class _Counted:
    """An answer's pieces; closing them counts the request."""

    __slots__ = ("_pieces", "_request")

    def __init__(self, pieces: Iterable[bytes], request: CountedRequest) -> None:
        self._pieces, self._request = pieces, request

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._pieces)

    def close(self) -> None:
        try:
            if hasattr(self._pieces, "close"):
                self._pieces.close()
        finally:
            self._request.end()
