"""The control API's share of the Open Inference Protocol, for a run of one archive."""

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from support.deployments import INSTANCE, deployment
from tfs_proxy.run.control_api import ControlApi
from tfs_proxy.run.heartbeats import Heartbeats
from tfs_proxy.run.open_inference import OpenInferenceApi, ready_versions
from tfs_proxy.run.readiness import Readiness, ServableState, StackState
from tfs_proxy.values.deployment import Deployment, Doors, WorkerPhase, WorkerState
from tfs_proxy.wire.http_messages import HttpRequest

AVAILABLE = ServableState("AVAILABLE")


class Run:
    """A run that serves ``models``, and its control API."""

    def __init__(self, models: Mapping[str, tuple[int, ...]], script_model: str | None = None) -> None:
        self.readiness = Readiness(Heartbeats())
        instances = (INSTANCE,) if models else ()
        self.readiness.expect(instances, models)
        protocol = OpenInferenceApi(
            lambda: self.readiness, lambda: ready_versions(self), Path("no translator")
        )
        self.control_api = ControlApi(self, protocol.routes)
        self.deployment: Deployment | None = deployment(
            "a", models=models, instances=instances, doors=Doors(rest_api=True), script_model=script_model
        )

    def serve(self) -> None:
        self.readiness.state = StackState.READY
        self.readiness.heartbeats.hear(WorkerState(17, WorkerPhase.SERVES))
        for servable in tuple(self.readiness.servables):
            self.readiness.note(0, servable.model, {servable.version or 1: AVAILABLE})

    def told(self, path: str) -> tuple[int, Any]:
        response = asyncio.run(self.control_api.respond(HttpRequest("GET", path)))
        return response.status, json.loads(response.body)


def test_health_is_answered_before_workers_can() -> None:
    control_api = Run({"a": (1,)}).control_api

    def early(method: str, path: str) -> tuple[int, Any]:
        answer = asyncio.run(control_api.respond_early(HttpRequest(method, path)))
        return answer.status, json.loads(answer.body)

    assert early("GET", "/v2/health/live") == (200, {"live": True})
    assert early("GET", "/v2/health/ready") == (503, {"live": True, "ready": False})
    assert early("POST", "/v2/health/live")[0] == 405
    assert early("GET", "/v2") == (503, {"error": "starting"})


def test_only_versions_that_serve_are_ready() -> None:
    """Those that nobody has named, too; none of a model server that is away."""
    run = Run({"b": (9, 10), "a": ()})
    run.serve()
    run.readiness.note(0, "b", {9: AVAILABLE, 10: ServableState("END", "INTERNAL: it fails")})
    run.readiness.note(0, "a", {7: AVAILABLE, 8: ServableState("LOADING")})

    assert run.told("/ready-versions") == (200, {"a": [7], "b": [9]})
    run.readiness.lose(0)
    assert run.told("/ready-versions") == (200, {})


def test_a_script_model_has_one_version() -> None:
    run = Run({}, script_model="/opt/ml/model")
    assert run.told("/ready-versions") == (200, {})
    run.serve()

    assert run.told("/ready-versions") == (200, {"a": [1]})
