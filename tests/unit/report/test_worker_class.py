"""Worker classes that can't do what the settings ask for are refused before anything starts."""

import pytest

from tfs_proxy.errors import SettingsError
from tfs_proxy.report.prepare import check_worker_class
from tfs_proxy.settings import Settings


def test_tornado_can_not_keep_an_adaptive_limit() -> None:
    """The error names both settings, and what to take instead; also where tornado is not installed."""
    environ = {"SAGEMAKER_GUNICORN_WORKER_CLASS": "tornado", "TFS_PROXY_ADAPTIVE_LIMIT": "50ms"}

    with pytest.raises(SettingsError, match=r"TFS_PROXY_ADAPTIVE_LIMIT .*=tornado: .* Take gthread"):
        check_worker_class(Settings.from_env(environ))


@pytest.mark.parametrize("worker_class", ["gthread", "sync", "gevent"])
def test_all_other_classes_keep_it(worker_class: str) -> None:
    """They are installed with the tests."""
    environ = {"SAGEMAKER_GUNICORN_WORKER_CLASS": worker_class, "TFS_PROXY_ADAPTIVE_LIMIT": "50ms"}

    check_worker_class(Settings.from_env(environ))
