"""CreateTransformJob requests of tests, and what their jobs come to."""

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from botocore.exceptions import WaiterError

from support.endpoints import Endpoint

WAITER = {"Delay": 1, "MaxAttempts": 120}


def job_request(name: str, source: Path | str, target: Path | str, **more: Any) -> dict[str, Any]:
    """A job of the model ``m`` for lines; further members of its input are merged into it."""
    given = more.pop("TransformInput", {})
    return {
        "TransformJobName": name,
        "ModelName": "m",
        "TransformInput": {
            "DataSource": {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": str(source)}},
            "ContentType": "text/csv",
            "SplitType": "Line",
            **given,
        },
        "TransformOutput": {"S3OutputPath": str(target)},
        "TransformResources": {"InstanceType": "ml.m5.large", "InstanceCount": 1},
        **more,
    }


def ended_job(endpoint: Endpoint, name: str) -> dict[str, Any]:
    """What a job has come to, by botocore's waiter, which raises for a failed one."""
    client = endpoint.control_plane
    with contextlib.suppress(WaiterError):
        waiter = client.get_waiter("transform_job_completed_or_stopped")
        waiter.wait(TransformJobName=name, WaiterConfig=WAITER)
    described: dict[str, Any] = client.describe_transform_job(TransformJobName=name)
    assert "TransformEndTime" in described, endpoint.log
    return described


def completed(endpoint: Endpoint, request: Mapping[str, Any]) -> dict[str, Any]:
    """Have a job done to its end, which is a good one; its description."""
    endpoint.control_plane.create_transform_job(**request)
    described = ended_job(endpoint, request["TransformJobName"])
    assert described["TransformJobStatus"] == "Completed", endpoint.log
    return described


def written(folder: Path, **texts: str) -> Path:
    """The folder with a CSV file for each text."""
    folder.mkdir()
    for name, text in texts.items():
        (folder / f"{name}.csv").write_text(text)
    return folder
