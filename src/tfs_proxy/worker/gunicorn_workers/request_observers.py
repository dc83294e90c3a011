"""Observers of a worker's requests: printed output, counts, lines of the access log, and traces.

Requests that gunicorn refuses before the application gets them are told of where they are refused.
"""

import logging
import os
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from tfs_proxy.observe.line_file import appending
from tfs_proxy.observe.logs.access import (
    RequestLine,
    RequestLog,
    line_of,
    needs_stages,
    stages_text,
)
from tfs_proxy.observe.logs.entry import EntryHandler, set_level
from tfs_proxy.observe.logs.printed import print_to
from tfs_proxy.observe.request_counts import FinishedRequest, request_line
from tfs_proxy.observe.request_record import RequestRecord, handling
from tfs_proxy.observe.traces import is_divided
from tfs_proxy.settings.parsers import AccessLog, access_log
from tfs_proxy.settings.settings import inherited_environment
from tfs_proxy.values.deployment import Deployment
from tfs_proxy.values.layout import Workspace
from tfs_proxy.wire.header_names import STAGE_TIMES
from tfs_proxy.worker.gunicorn_workers.boundary import HeadersForNginx, RequestObserver

if TYPE_CHECKING:
    from tfs_proxy.observe.spans import RequestSpans
    from tfs_proxy.worker.capturing import Capture

log = logging.getLogger(__name__)


class WorkerLog:
    """Log and output of a worker, with the requests' ids: of our loggers, libraries' and the script's."""

    def __init__(self, error_log: logging.Logger) -> None:
        root = logging.getLogger()
        if not root.handlers:
            root.handlers = list(error_log.handlers)
        set_level(logging.getLevelName(error_log.getEffectiveLevel()).lower())
        handlers = (handler for handler in error_log.handlers if isinstance(handler, EntryHandler))
        self._streams = print_to(next(handlers))

    def note_end(self, record: RequestRecord) -> None:
        """Write the request's output without a line end."""
        for stream in self._streams:
            if stream.unfinished:
                with handling(record):
                    stream.finish(record)

    def finish(self) -> None:
        """Write this thread's output without a line end."""
        for stream in self._streams:
            stream.finish()


class OwnLines:
    """Count and log of each request of a worker without nginx, which has both otherwise."""

    def __init__(self, path: Path, wanted: AccessLog) -> None:
        self._file = appending(path)
        self._log = RequestLog(wanted)
        self._wanted = wanted

    def note_end(self, record: RequestRecord) -> None:
        """Count a request that the application had; log it if it is one of those that are wanted."""
        request = FinishedRequest(
            record.method,
            record.status,
            time.perf_counter() - record.began,
            record.target,
            model=record.model,
            version=record.version,
            bytes_in=record.bytes_in,
            bytes_out=record.bytes_out,
            reason=record.reason,
        )
        os.write(self._file, request_line(request))
        if needs_stages(record, self._wanted):  # saves the making of the line
            self._log.show(line_of(record, request), "worker", os.getpid())

    def refuse(self, request: FinishedRequest, request_id: str) -> None:
        """Count a request that did not reach the application; log it likewise."""
        os.write(self._file, request_line(request))
        self._log.show(RequestLine(request, request_id), "worker", os.getpid())


def stages_for_nginx(wanted: AccessLog, record: RequestRecord) -> Sequence[tuple[str, str]]:
    """Header that tells nginx the stages of a request that may get a line."""
    return ((STAGE_TIMES, stages_text(record)),) if needs_stages(record, wanted) else ()


class Observers(Struct, frozen=True):
    """Observers that a deployment asks for; None for those that it does not."""

    spans: "RequestSpans | None" = None
    """Traces of requests."""

    lines: OwnLines | None = None
    """Writer of the lines of requests; None behind nginx, which counts and logs them."""

    capture: "Capture | None" = None
    """Data capture."""

    headers_for_nginx: HeadersForNginx | None = None
    """Maker of the headers with which nginx logs an answer; None without nginx."""

    def beside(self, *own: RequestObserver) -> Sequence[RequestObserver]:
        """These and a worker's ``own``; spans end first."""
        every = (self.spans, *own, self.lines, self.capture)
        return [observer for observer in every if observer is not None]


def observers_for(deployment: Deployment, workspace: Workspace) -> Observers:
    """Make the observers that a worker has by its deployment, which begin at once."""
    observation = deployment.observation
    wanted = access_log(observation.access_log)
    capture = None
    if observation.capture is not None:
        from tfs_proxy.worker.capturing import Capture

        capture = Capture(observation.capture)
    lines = OwnLines(workspace.requests, wanted) if observation.counts_requests else None
    headers = None if observation.counts_requests else partial(stages_for_nginx, wanted)
    return Observers(request_spans(deployment), lines, capture, headers)


def request_spans(deployment: Deployment) -> "RequestSpans | None":
    """Begin traces if the deployment has them; OTEL_* variables that OpenTelemetry refuses are logged."""
    if deployment.observation.traces is None:
        return None
    try:
        # The import of OpenTelemetry takes a few hundred ms, and reads variables, too.
        from tfs_proxy.observe.spans import RequestSpans

        marked = is_divided(deployment.observation.traces) and not deployment.observation.counts_requests
        return RequestSpans(inherited_environment(), marked=marked)
    except Exception as error:  # noqa: BLE001 - odd values of the variables raise any error
        log.warning("no traces are sent: OpenTelemetry can't be configured: %s", error)
        return None
