"""What every test shares: an environment without anybody's settings."""

import os

import pytest

pytest_plugins = ["plugins_models"]

PREFIXES = ("SAGEMAKER_", "TFS_", "TFS_PROXY_", "AWS_", "OMP_")


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take settings of the surrounding machine out of the environment."""
    for name in tuple(os.environ):
        if name.startswith(PREFIXES):
            monkeypatch.delenv(name)
