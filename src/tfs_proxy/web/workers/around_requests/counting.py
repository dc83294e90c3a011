"""Counts a worker's requests if there is no nginx to do so: a line for each, in a file that outlives it.

Requests that gunicorn refuses before the application sees them are counted where they are refused.
"""

import time
from pathlib import Path

from tfs_proxy.observe.line_file import LineWriter
from tfs_proxy.observe.request_counts import FinishedRequest, request_line
from tfs_proxy.observe.request_record import RequestRecord


class RequestCounting:
    """Writes a line for each request that has ended."""

    def __init__(self, path: Path) -> None:
        self._file = LineWriter(path)

    def end(self, record: RequestRecord) -> None:
        """Count a request that the application had."""
        seconds = time.perf_counter() - record.began
        self.write(
            FinishedRequest(
                record.method,
                record.status,
                seconds,
                record.target,
                model=record.model,
                version=record.version,
                bytes_in=record.bytes_in,
                bytes_out=record.bytes_out,
            )
        )

    def write(self, request: FinishedRequest) -> None:
        """Write a request's line."""
        self._file.write(request_line(request))
