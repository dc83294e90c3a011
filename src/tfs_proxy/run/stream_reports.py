"""Reports of the processes of bidirectional streams: which of them serve, and the streams of all."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from http import HTTPStatus

from msgspec.json import decode

from tfs_proxy.observe import catalogue
from tfs_proxy.observe.metric import MeasuredMetric
from tfs_proxy.values.deployment import StreamReport
from tfs_proxy.values.processes import has_ended
from tfs_proxy.wire.http_messages import HttpRequest, HttpResponse
from tfs_proxy.wire.routes import STREAMS, Handlers

LOST = "lost"
"""Outcome of streams whose process died."""


class StreamReports:
    """The last report of each process, and the sums of those that have ended."""

    def __init__(self) -> None:
        self.routes: Handlers = {STREAMS: self._hear}
        self._last: dict[int, StreamReport] = {}
        self._ended: Counter[str] = Counter()
        self._in = self._out = 0
        self._heard = asyncio.Event()

    def serves(self, pid: int | None) -> bool:
        """True if this process takes streams."""
        return pid in self._last

    async def until_serves(self, pid: Callable[[], int | None]) -> None:
        """Returns once the process that has this ``pid`` by then takes streams."""
        while not self.serves(pid()):
            self._heard.clear()
            await self._heard.wait()

    def measure(self) -> Iterator[MeasuredMetric]:
        """Streams and messages since the start of the run; nothing if no process has taken any."""
        for pid in [pid for pid in self._last if has_ended(pid)]:
            report = self._last.pop(pid)
            self._ended.update(report.ended)
            if report.open:
                self._ended[LOST] += report.open
            self._in += report.messages_in
            self._out += report.messages_out
        if not self._last and not self._ended:
            return
        reports = self._last.values()
        ended = sum((Counter(report.ended) for report in reports), self._ended)
        messages_in = self._in + sum(report.messages_in for report in reports)
        messages_out = self._out + sum(report.messages_out for report in reports)
        yield MeasuredMetric(catalogue.STREAMS_OPEN, {(): sum(report.open for report in reports)})
        yield MeasuredMetric(catalogue.STREAMS, {(outcome,): count for outcome, count in ended.items()})
        yield MeasuredMetric(catalogue.STREAM_MESSAGES, {("in",): messages_in, ("out",): messages_out})

    async def _hear(self, request: HttpRequest) -> HttpResponse:
        try:
            report = decode(request.body, type=StreamReport)
        except (ValueError, RecursionError):
            return HttpResponse.error(HTTPStatus.BAD_REQUEST, "not a report of streams")
        self._last[report.pid] = report
        self._heard.set()
        return HttpResponse(HTTPStatus.OK)
