"""Counts requests from the lines that nginx, or the workers without it, write at the end of each.

A line is ``STATUS SECONDS GRPC_STATUS MODEL VERSION BYTES_IN BYTES_OUT REQUEST_LINE``, with ``-`` for what is
not known; `NGINX_FORMAT` and `request_line` write it.
"""

import re
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterator

from msgspec import Struct

from tfs_proxy.observe import catalogue
from tfs_proxy.observe.metric import Distribution, MeasuredMetric
from tfs_proxy.observe.model_counts import SECONDS_BOUNDS, ModelCounts
from tfs_proxy.observe.routes import (
    INVOCATIONS,
    PROBES,
    is_inference,
    is_named_in_line,
    method_of,
    model_of,
    path_of,
    route_of,
    status_of,
)
from tfs_proxy.wire.grpc_codes import HTTP_STATUS

NGINX_FORMAT = "$status $request_time - $asked_model $asked_version $request_length $bytes_sent $request"
"""The whole request line, since an error page makes GET of the method alone."""

NGINX_GRPC_FORMAT = (
    "$status $request_time $sent_trailer_grpc_status$sent_http_grpc_status $grpc_model 0 0 $request"
)
"""nginx writes ``-`` for what is empty, so that one of the two statuses has a ``-`` before or behind it.

``$grpc_model`` is a map of nginx.conf: the model and version that the router says, ``- -`` without one.
"""

_WORD = "[!-~]{1,255}"
_LINE = re.compile(
    rf"([0-9]{{3}}) ([0-9]{{1,9}}\.[0-9]{{1,9}}) -?([0-9]{{0,3}})-? ({_WORD}) ({_WORD}) "
    "([0-9]{1,19}) ([0-9]{1,19}) ([ -~]*)".encode()
)
_READABLE_WORD = re.compile(_WORD)
_UNKNOWN, _UNREADABLE = "-", "?"
_UNKNOWN_GRPC_STATUS = "other"
_MOST_GRPC_STATUS = 16


class FinishedRequest(Struct, frozen=True):
    """One request that has been answered, or whose client has gone.

    ``model`` and ``version`` are what it asks for, "" if it names none; sizes are in bytes. ``reason`` is why
    it failed, if that is known.
    """

    method: str
    status: int
    seconds: float
    target: str
    grpc_status: str = ""
    model: str = ""
    version: str = ""
    bytes_in: int = 0
    bytes_out: int = 0
    reason: str = ""


def request_line(request: FinishedRequest) -> bytes:
    """The line of a request, with its end."""
    line = f"{request.method} {path_of(request.target)}"
    readable = line if line.isascii() and line.isprintable() else "-"
    asked = f"{_word(request.model)} {_word(request.version)}"
    sizes = f"{request.bytes_in} {request.bytes_out}"
    grpc_status = request.grpc_status or _UNKNOWN
    return f"{request.status:03} {request.seconds:.6f} {grpc_status} {asked} {sizes} {readable}\n".encode()


def read_line(line: bytes) -> FinishedRequest | None:
    """The inverse of `request_line`, and of nginx's; None if the line can't be read."""
    match = _LINE.fullmatch(line)
    if match is None:
        return None
    status, seconds, grpc_status, model, version, bytes_in, bytes_out, request = (
        match[0].decode().split(" ", 7)
    )
    method, _, target = request.partition(" ")
    return FinishedRequest(
        method,
        int(status),
        float(seconds),
        target.partition(" ")[0],
        grpc_status.strip("-"),
        model.removeprefix(_UNKNOWN),
        version.removeprefix(_UNKNOWN),
        int(bytes_in),
        int(bytes_out),
    )


def _meant_status(request: FinishedRequest) -> int:
    """The status by which HTTP would say how a request ended: every call of gRPC is 200 there."""
    return (
        HTTP_STATUS.get(int(request.grpc_status), request.status) if request.grpc_status else request.status
    )


def _word(text: str) -> str:
    if not text:
        return _UNKNOWN
    return text if _READABLE_WORD.fullmatch(text) else _UNREADABLE


class RequestCounts:
    """All requests of a run by route, method and status; they only grow.

    ``models`` counts those for a model besides, once it is known which models there are.
    """

    def __init__(self) -> None:
        self.models: ModelCounts | None = None
        self._counts: dict[tuple[str, ...], list[int]] = {}
        self._seconds: dict[tuple[str, ...], float] = defaultdict(float)
        self._probes: Counter[tuple[str, str]] = Counter()
        self._grpc: Counter[tuple[str, str]] = Counter()
        self._unreadable = 0

    def add_lines(self, lines: bytes) -> None:
        """Count every line of ``lines``, whatever it is."""
        # PERF: most lines of a busy moment are equal, and each different one is read once.
        for line, times in Counter(lines.split(b"\n")).items():
            if not line:
                continue
            request = read_line(line)
            if request is None:
                self._unreadable += times
            else:
                self.add(request, times)

    def add(self, request: FinishedRequest, times: int = 1) -> None:
        """Count a request, ``times`` over."""
        path, status = path_of(request.target), status_of(request.status)
        if path in PROBES:
            self._probes[path, status] += times
            return
        labels = (route_of(path), method_of(request.method), status)
        counts = self._counts.setdefault(labels, [0] * (len(SECONDS_BOUNDS) + 1))
        counts[bisect_left(SECONDS_BOUNDS, request.seconds)] += times
        self._seconds[labels] += request.seconds * times
        if self.models is not None:
            self._add_to_model(self.models, request, path, times)
        if request.grpc_status:
            known = int(request.grpc_status) <= _MOST_GRPC_STATUS
            self._grpc[labels[0], request.grpc_status if known else _UNKNOWN_GRPC_STATUS] += times

    @staticmethod
    def _add_to_model(models: ModelCounts, request: FinishedRequest, path: str, times: int) -> None:
        asked = (request.model, request.version) if is_named_in_line(path) else model_of(path)
        if asked is not None and (path == INVOCATIONS or asked[0]):  # only there a model needs no name
            sizes = (request.bytes_in, request.bytes_out)
            status = _meant_status(request)
            models.add(asked, status, request.seconds, sizes, times)
            if is_inference(path):
                models.add_inference(asked, status, request.seconds, times)

    def measure(self) -> Iterator[MeasuredMetric]:
        """All counts so far."""
        distributions = {
            labels: Distribution(SECONDS_BOUNDS, tuple(counts), self._seconds[labels])
            for labels, counts in self._counts.items()
        }
        yield MeasuredMetric(catalogue.REQUEST_DURATION, distributions=distributions)
        if self.models is not None:
            yield from self.models.measure()
        yield MeasuredMetric(catalogue.PROBE_REQUESTS, dict(self._probes.items()))
        yield MeasuredMetric(catalogue.GRPC_REQUESTS, dict(self._grpc.items()))
        yield MeasuredMetric(catalogue.UNREADABLE_LINES, {(): self._unreadable})
