"""What /execution-parameters offers, computed from machine and settings."""

import pytest

from tfs_proxy.run.plan import transform_limits
from tfs_proxy.settings.settings import Settings
from tfs_proxy.values.deployment import TransformLimits
from tfs_proxy.values.resources import Resources

BATCHING = {"SAGEMAKER_TFS_ENABLE_BATCHING": "true", "SAGEMAKER_TFS_MAX_BATCH_SIZE": "4"}


@pytest.mark.parametrize(
    ("environ", "limits"),
    [
        ({}, TransformLimits(8, 6)),
        ({"SAGEMAKER_MAX_PAYLOAD_IN_MB": "1"}, TransformLimits(8, 1)),
        ({"SAGEMAKER_MAX_PAYLOAD_IN_MB": "50"}, TransformLimits(2, 50)),
        ({"SAGEMAKER_MAX_PAYLOAD_IN_MB": "0"}, TransformLimits(8, 6)),
        ({"SAGEMAKER_MAX_PAYLOAD_IN_MB": "500"}, TransformLimits(1, 100)),
        ({**BATCHING, "SAGEMAKER_MAX_PAYLOAD_IN_MB": "1"}, TransformLimits(32, 1)),
        (BATCHING, TransformLimits(16, 6)),
        ({"SAGEMAKER_GUNICORN_WORKERS": "1", "SAGEMAKER_GUNICORN_THREADS": "2"}, TransformLimits(2, 6)),
    ],
)
def test_limits_follow_machine_and_settings(environ: dict[str, str], limits: TransformLimits) -> None:
    """Four cores, twice as many requests, never over 100 MB or what the workers take."""
    assert transform_limits(Settings.from_env(environ, Resources(4))) == limits
    assert limits.concurrent * limits.payload_mb <= 100
