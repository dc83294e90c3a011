"""How many processes there will be, and which of them wait until they are needed."""

import pytest

from tfs_proxy.report.capacity import starts_on_demand
from tfs_proxy.resources import Resources
from tfs_proxy.settings import Settings


@pytest.mark.parametrize(
    ("environ", "cores", "script", "on_demand"),
    [
        pytest.param({}, 2, False, True, id="no script"),
        pytest.param({}, 2, True, False, id="a script"),
        pytest.param({}, 1, False, False, id="one worker"),
        pytest.param({"SAGEMAKER_GUNICORN_WORKERS": "2"}, 2, False, False, id="set by the user"),
        pytest.param({"SAGEMAKER_GUNICORN_WORKER_CLASS": "sync"}, 2, False, False, id="another class"),
        pytest.param({"SAGEMAKER_GUNICORN_THREADS": "1"}, 2, False, False, id="no two requests at once"),
        pytest.param({"TFS_PROXY_ADAPTIVE_LIMIT": "50ms"}, 2, False, False, id="all go through workers"),
        pytest.param({"TFS_PROXY_RELOAD": "true"}, 2, False, False, id="scripts may come"),
        pytest.param({"TFS_PROXY_NGINX": "false"}, 2, False, False, id="one socket"),
    ],
)
def test_workers_start_on_demand_if_that_costs_little(
    environ: dict[str, str], cores: int, script: bool, on_demand: bool
) -> None:
    """They have nothing of their own to load then, and can stand in for each other."""
    settings = Settings.from_env(environ, Resources(cores))

    assert starts_on_demand(settings, script=script) == on_demand
