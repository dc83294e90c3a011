"""The control API's share of the Open Inference Protocol, for a run of one archive."""

import asyncio
import json
from pathlib import Path
from typing import Any

from support.deployments import deployment
from tfs_proxy.run.control_api import ControlApi
from tfs_proxy.run.heartbeats import Heartbeats
from tfs_proxy.run.open_inference import open_inference_routes
from tfs_proxy.run.readiness import Readiness
from tfs_proxy.wire.http_messages import HttpRequest


class Starting:
    """A run that serves nothing yet."""

    def __init__(self) -> None:
        self.readiness = Readiness(Heartbeats())
        self.deployment = deployment("a")


def test_health_is_answered_before_workers_can() -> None:
    run = Starting()
    protocol = open_inference_routes(lambda: run.readiness, dict, Path("no translator"))
    control_api = ControlApi(run, protocol)

    def early(method: str, path: str) -> tuple[int, Any]:
        answer = asyncio.run(control_api.respond_early(HttpRequest(method, path)))
        return answer.status, json.loads(answer.body)

    assert early("GET", "/v2/health/live") == (200, {"live": True})
    assert early("GET", "/v2/health/ready") == (503, {"live": True, "ready": False})
    assert early("POST", "/v2/health/live")[0] == 405
    assert early("GET", "/v2") == (503, {"error": "starting"})
