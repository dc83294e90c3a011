"""AsyncInferenceConfig of an endpoint's config -> where answers go, how many at once, and who is told."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from tfs_proxy.endpoint.asynchronous.locations import address_of
from tfs_proxy.errors import SettingsError

CONCURRENT = 4
"""Requests that an instance answers at once, if the config does not say it; SageMaker chooses a number."""

MEMBER = "AsyncInferenceConfig"


class AsyncConfig(Struct, frozen=True):
    """AWS's AsyncInferenceConfig: addresses are ``s3://`` or ``file://``, without a slash at their end.

    ``failures`` is None if the answers to failed requests are not kept; topics are names of SNS, None if
    nobody is told. ``shows_success`` and ``shows_error`` put answers into the notifications.
    """

    outputs: str
    failures: str | None = None
    concurrent: int = CONCURRENT
    success_topic: str | None = None
    error_topic: str | None = None
    shows_success: bool = False
    shows_error: bool = False


def async_config(parameters: Mapping[str, Any], folder: Path) -> AsyncConfig | None:
    """Of a request for CreateEndpointConfig, None if it has no AsyncInferenceConfig.

    Relative paths start from ``folder``. Raises SettingsError that names AWS's member.
    """
    if MEMBER not in parameters:
        return None
    asked = parameters[MEMBER]
    outputs = asked["OutputConfig"]
    if "S3OutputPath" not in outputs:
        raise SettingsError(f"{MEMBER}.OutputConfig.S3OutputPath is missing: answers need a place to go to.")
    failures = outputs.get("S3FailurePath")
    told = outputs.get("NotificationConfig", {})
    shown = told.get("IncludeInferenceResponseIn", [])
    return AsyncConfig(
        address_of("S3OutputPath", outputs["S3OutputPath"], folder),
        None if failures is None else address_of("S3FailurePath", failures, folder),
        asked.get("ClientConfig", {}).get("MaxConcurrentInvocationsPerInstance", CONCURRENT),
        _topic(told.get("SuccessTopic")),
        _topic(told.get("ErrorTopic")),
        "SUCCESS_NOTIFICATION_TOPIC" in shown,
        "ERROR_NOTIFICATION_TOPIC" in shown,
    )


def _topic(arn: str | None) -> str | None:
    """The topic's own name, which is the last part of its ARN."""
    return arn.rpartition(":")[2] if arn else None
