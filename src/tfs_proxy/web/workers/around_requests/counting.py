"""Counts a worker's requests: their stages in a table, and without nginx a line for each, in a file.

Requests that gunicorn refuses before the application sees them are counted where they are refused.
"""

import time
from pathlib import Path

from tfs_proxy.deployment import Deployment
from tfs_proxy.observe.line_file import LineWriter
from tfs_proxy.observe.request_counts import FinishedRequest, KnownModels, request_line
from tfs_proxy.observe.request_record import READ, RequestRecord
from tfs_proxy.observe.routes import PROBES, path_of
from tfs_proxy.observe.stage_table import FAILED_FROM, StageLayout, StageTable


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


class StageObserver:
    """Counts the requests that were for a model, and all that failed; those refused before have no stages.

    A script that is the model itself has no name.
    """

    def __init__(self, folder: Path, deployment: Deployment) -> None:
        known = KnownModels(deployment.default_model, deployment.models)
        self._table = StageTable(folder, StageLayout(known))
        self.problem = self._table.problem
        self._is_script_model = deployment.script_model is not None

    def end(self, record: RequestRecord) -> None:
        """Count its stages, and the one that it failed in."""
        if record.status >= FAILED_FROM and path_of(record.target) not in PROBES:
            self._table.add_failure(record)
        if record.model or (self._is_script_model and record.seconds[READ]):
            self._table.add(record)
