"""How many processes there will be, and which of them wait until they are needed."""

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tfs_proxy.deployment import Deployment
from tfs_proxy.layout import WARMUP_FILE
from tfs_proxy.report.capacity import starts_on_demand, workers_at_first
from tfs_proxy.resources import Resources
from tfs_proxy.settings import Settings


@pytest.mark.parametrize(
    ("environ", "cores", "on_demand"),
    [
        pytest.param({}, 2, True, id="by default"),
        pytest.param({}, 1, False, id="one worker"),
        pytest.param({"SAGEMAKER_GUNICORN_WORKERS": "2"}, 2, False, id="set by the user"),
        pytest.param({"SAGEMAKER_GUNICORN_WORKER_CLASS": "sync"}, 2, False, id="another class"),
        pytest.param({"SAGEMAKER_GUNICORN_THREADS": "1"}, 2, False, id="no two requests at once"),
        pytest.param({"TFS_PROXY_ADAPTIVE_LIMIT": "50ms"}, 2, False, id="all go through workers"),
        pytest.param({"TFS_PROXY_RELOAD": "true"}, 2, False, id="scripts may come"),
        pytest.param({"TFS_PROXY_NGINX": "false"}, 2, False, id="one socket"),
    ],
)
def test_workers_start_on_demand_if_that_costs_little(
    environ: dict[str, str], cores: int, on_demand: bool
) -> None:
    """They can stand in for each other then."""
    settings = Settings.from_env(environ, Resources(cores))

    assert starts_on_demand(settings) == on_demand


@pytest.fixture
def deployment() -> Deployment:
    """A model without a script, nothing recorded."""
    return Deployment("m", {"m": (1,)}, (), None, (), 1000, 60.0)


@pytest.mark.parametrize(
    ("changes", "count"),
    [
        pytest.param({}, 0, id="JSON"),
        pytest.param({"default_accept": "text/csv"}, 1, id="no JSON is asked for"),
        pytest.param({"script": "inference.py"}, 1, id="a script"),
    ],
)
def test_no_worker_starts_before_a_request_needs_one(
    deployment: Deployment, changes: dict[str, Any], count: int | None
) -> None:
    """If every request needs one, it does not wait for the first."""
    settings = Settings.from_env({}, Resources(2))

    assert workers_at_first(settings, replace(deployment, **changes)) == count


def test_recorded_requests_want_a_worker(deployment: Deployment, tmp_path: Path) -> None:
    """It warms itself up with them before the run is ready."""
    (tmp_path / WARMUP_FILE).parent.mkdir()
    (tmp_path / WARMUP_FILE).touch()
    deployment = replace(deployment, graph_folders={"m": str(tmp_path)})

    assert workers_at_first(Settings.from_env({}, Resources(2)), deployment) == 1
