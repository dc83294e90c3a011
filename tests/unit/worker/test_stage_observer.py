"""Which of a worker's requests have their stages counted."""

from pathlib import Path

import pytest

from tfs_proxy.observe import catalogue
from tfs_proxy.observe.request_counts import KnownModels
from tfs_proxy.observe.request_record import READ, WAIT, RequestRecord
from tfs_proxy.observe.stage_table import StageTables
from tfs_proxy.values.deployment import Deployment
from tfs_proxy.worker.gunicorn_workers.request_observers import StageObserver


@pytest.mark.parametrize(
    ("default_model", "script_model", "asked_model", "counted"),
    [
        ("m", None, "m", [("read", "m"), ("wait", "m")]),
        ("m", None, "", []),
        ("", "/model", "", [("read", ""), ("wait", "")]),
    ],
    ids=["a model", "refused before", "a script that is the model"],
)
def test_requests_for_a_model_are_counted(
    tmp_path: Path,
    default_model: str,
    script_model: str | None,
    asked_model: str,
    counted: list[tuple[str, str]],
) -> None:
    """A script that is the model itself has no name, and stages all the same."""
    deployment = Deployment(default_model, {}, (), None, (), 1000, 1.0, script_model=script_model)
    observer = StageObserver(tmp_path / "stages", deployment)
    record = RequestRecord("an-id")
    record.model = asked_model
    record.seconds[WAIT] = record.seconds[READ] = 0.001
    observer.end(record)

    known = KnownModels(default_model, {})
    measured = {metric.description: metric for metric in StageTables(tmp_path / "stages", known).measure()}
    assert sorted(measured[catalogue.STAGE_DURATION].distributions or {}) == counted
