"""Counts requests from the lines that nginx, or the workers without it, write at the end of each.

A line is ``STATUS SECONDS GRPC_STATUS REQUEST_LINE``; `NGINX_FORMAT` and `request_line` write it.
"""

import re
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from tfs_proxy.observe import catalogue
from tfs_proxy.observe.metric import Distribution, MeasuredMetric
from tfs_proxy.observe.routes import PROBES, method_of, path_of, route_of, status_of

NGINX_FORMAT = "$status $request_time - $request"
"""The whole request line, since an error page makes GET of the method alone."""

NGINX_GRPC_FORMAT = "$status $request_time $sent_trailer_grpc_status$sent_http_grpc_status $request"
"""nginx writes ``-`` for what is empty, so that one of the two statuses has a ``-`` before or behind it."""

SECONDS_BOUNDS = (0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_LINE = re.compile(rb"([0-9]{3}) ([0-9]{1,9}\.[0-9]{1,9}) -?([0-9]{0,3})-? ([ -~]*)")
_UNKNOWN_GRPC_STATUS = "other"
_MOST_GRPC_STATUS = 16


@dataclass(frozen=True, slots=True)
class FinishedRequest:
    """One request that has been answered, or whose client has gone."""

    method: str
    status: int
    seconds: float
    target: str
    grpc_status: str = ""


def request_line(request: FinishedRequest) -> bytes:
    """The line of a request, with its end."""
    line = f"{request.method} {path_of(request.target)}"
    readable = line if line.isascii() and line.isprintable() else "-"
    return f"{request.status:03} {request.seconds:.6f} - {readable}\n".encode()


def read_line(line: bytes) -> FinishedRequest | None:
    """The inverse of `request_line`, and of nginx's; None if the line can't be read."""
    fields = _LINE.fullmatch(line)
    if fields is None:
        return None
    method, _, target = fields[4].decode("ascii").partition(" ")
    return FinishedRequest(
        method, int(fields[1]), float(fields[2]), target.partition(" ")[0], fields[3].decode("ascii")
    )


class RequestCounts:
    """All requests of a run by route, method and status; they only grow."""

    def __init__(self) -> None:
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
        if request.grpc_status:
            known = int(request.grpc_status) <= _MOST_GRPC_STATUS
            self._grpc[labels[0], request.grpc_status if known else _UNKNOWN_GRPC_STATUS] += times

    def measure(self) -> Iterator[MeasuredMetric]:
        """All counts so far."""
        distributions = {
            labels: Distribution(SECONDS_BOUNDS, tuple(counts), self._seconds[labels])
            for labels, counts in self._counts.items()
        }
        yield MeasuredMetric(catalogue.REQUEST_DURATION, distributions=distributions)
        yield MeasuredMetric(catalogue.PROBE_REQUESTS, dict(self._probes.items()))
        yield MeasuredMetric(catalogue.GRPC_REQUESTS, dict(self._grpc.items()))
        yield MeasuredMetric(catalogue.UNREADABLE_LINES, {(): self._unreadable})
