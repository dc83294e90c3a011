"""A worker's part in the access log: the line of a request without nginx, the stages for nginx's with it."""

import os
import time
from collections.abc import Sequence

from tfs_proxy.observe.logs.access import (
    RequestLine,
    RequestLog,
    line_of,
    needs_stages,
    stages_text,
)
from tfs_proxy.observe.request_counts import FinishedRequest
from tfs_proxy.observe.request_record import RequestRecord
from tfs_proxy.setting_values import AccessLog
from tfs_proxy.wire.header_names import STAGE_TIMES

PROCESS = "worker"


class AccessObserver:
    """Logs the requests that ``wanted`` asks for."""

    def __init__(self, wanted: AccessLog) -> None:
        self._wanted = wanted
        self._log = RequestLog(wanted)

    def end(self, record: RequestRecord) -> None:
        """Log a request that the application had."""
        if not needs_stages(record, self._wanted):
            return  # PERF: no line is made that nobody sees
        seconds = time.perf_counter() - record.began
        request = FinishedRequest(record.method, record.status, seconds, record.target, reason=record.reason)
        self._log.show(line_of(record, request), PROCESS, os.getpid())

    def log_refused(self, request: FinishedRequest, request_id: str) -> None:
        """Log a request that never came to the application."""
        self._log.show(RequestLine(request, request_id), PROCESS, os.getpid())


class StagesForNginx:
    """The header by which nginx learns of the stages of a request that may get a line."""

    def __init__(self, wanted: AccessLog) -> None:
        self._wanted = wanted

    def __call__(self, record: RequestRecord) -> Sequence[tuple[str, str]]:
        """Headers of an answer whose status is known."""
        if record.over_limit or needs_stages(record, self._wanted):
            return ((STAGE_TIMES, stages_text(record)),)
        return ()
