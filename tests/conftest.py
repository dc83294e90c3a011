"""What every test shares: an environment without anybody's settings."""

import os

import pytest
from hypothesis import HealthCheck, settings

pytest_plugins = ["support.judged", "support.model_fixtures", "support.shared_stacks"]

# A test that waits for a busy machine has not failed. The same examples each time: whether a change is sound
# is no matter of luck.
settings.register_profile(
    "repeatable", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("repeatable")

# Everything that tests talk to is on this machine, whatever proxy package indexes are behind.
for _name in ("no_proxy", "NO_PROXY"):
    os.environ[_name] = ",".join(filter(None, (os.environ.get(_name), "127.0.0.1", "localhost")))

PREFIXES = ("SAGEMAKER_", "TFS_", "TFS_PROXY_", "AWS_", "OMP_", "MODEL_NAME", "MODEL_BASE_PATH", "OTEL_")


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take settings of the surrounding machine out of the environment."""
    for name in tuple(os.environ):
        if name.startswith(PREFIXES):
            monkeypatch.delenv(name)
