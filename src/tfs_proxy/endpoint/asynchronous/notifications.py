"""What SNS would tell its topics about a finished request, as one file each in a folder."""

import json
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import pybase64
from msgspec import Struct

from tfs_proxy.endpoint.asynchronous.config import AsyncConfig
from tfs_proxy.endpoint.asynchronous.locations import write_location
from tfs_proxy.endpoint.asynchronous.request import AsyncRequest

MOST_SHOWN_BYTES = 128 * 1024
"""The largest answer that a notification has (AWS's description of IncludeInferenceResponseIn)."""


class AsyncOutcome(Struct, frozen=True):
    """How a request ended: ``failure`` is the reason, or None; ``body`` the container's answer, if any."""

    content_type: str
    body: bytes
    failure: str | None = None


class Notifications:
    """Writes into ``folder``, or nowhere if that is None; ``endpoint`` is the endpoint's name."""

    def __init__(self, endpoint: str, config: AsyncConfig, folder: Path | None) -> None:
        self._endpoint, self._config, self._folder = endpoint, config, folder

    def tell(self, request: AsyncRequest, outcome: AsyncOutcome) -> None:
        """Write the notification if there is a topic for it; raises LocationFailed."""
        config = self._config
        has_failed = outcome.failure is not None
        topic = config.error_topic if has_failed else config.success_topic
        if topic is None or self._folder is None:
            return
        document = self._document(request, outcome)
        if config.shows_error if has_failed else config.shows_success:
            document.update(_shown(outcome))
        path = self._folder.absolute() / f"{topic}-{time.time_ns()}-{uuid4().hex[:8]}.json"
        write_location(path.as_uri(), json.dumps(document, indent=1).encode(), "application/json")

    def _document(self, request: AsyncRequest, outcome: AsyncOutcome) -> dict[str, Any]:
        members = request.members
        asked = {
            "accept": members.get("Accept"),
            "contentType": members.get("ContentType"),
            "endpointName": self._endpoint,
            "inputLocation": request.input_location,
        }
        document: dict[str, Any] = {
            "awsRegion": "local",
            "eventTime": _time(time.time()),
            "receivedTime": _time(request.received),
            "invocationStatus": "Completed" if outcome.failure is None else "Failed",
            "requestParameters": {name: value for name, value in asked.items() if value is not None},
            "inferenceId": request.inference_id,
            "eventVersion": "1.0",
            "eventSource": "aws:sagemaker",
            "eventName": "InferenceResult",
        }
        if outcome.failure is None:
            answered = {"contentType": outcome.content_type, "outputLocation": request.output}
            return {**document, "responseParameters": answered}
        return {**document, "failureReason": outcome.failure}


def _shown(outcome: AsyncOutcome) -> dict[str, Any]:
    if not outcome.body or len(outcome.body) > MOST_SHOWN_BYTES:
        return {}
    content = pybase64.b64encode(outcome.body).decode()
    return {"responseBody": {"content": content, "encoding": "BASE64"}}


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
