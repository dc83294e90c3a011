"""Counts the stages of a worker's requests, in a table that the supervisor reads."""

from pathlib import Path

from tfs_proxy.deployment import Deployment
from tfs_proxy.observe.request_counts import KnownModels
from tfs_proxy.observe.request_record import READ, RequestRecord
from tfs_proxy.observe.routes import PROBES, path_of
from tfs_proxy.observe.stage_table import FAILED_FROM, StageLayout, StageTable


class StageObserver:
    """Counts the requests that were for a model, and all that failed; those refused before have no stages.

    A script that is the model itself has no name.
    """

    def __init__(self, folder: Path, deployment: Deployment) -> None:
        known = KnownModels(deployment.default_model, deployment.models)
        self._table = StageTable(folder, StageLayout(known))
        self._is_script_model = deployment.script_model is not None

    def end(self, record: RequestRecord) -> None:
        """Count its stages, and the one that it failed in."""
        if record.status >= FAILED_FROM and path_of(record.target) not in PROBES:
            self._table.add_failure(record)
        if record.model or (self._is_script_model and record.seconds[READ]):
            self._table.add(record)
