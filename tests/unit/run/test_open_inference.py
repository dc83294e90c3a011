"""The control API's share of the Open Inference Protocol, for a run of one archive."""

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from support.deployments import INSTANCE, deployment
from tfs_proxy import __version__
from tfs_proxy.run.control_api import ControlApi
from tfs_proxy.run.heartbeats import Heartbeats
from tfs_proxy.run.open_inference import OpenInferenceApi
from tfs_proxy.run.open_inference import ready_versions as ready_versions_of
from tfs_proxy.run.readiness import Readiness, ServableState, StackState
from tfs_proxy.values.deployment import Deployment, WorkerPhase, WorkerState
from tfs_proxy.wire.http_messages import HttpRequest, HttpResponse

AVAILABLE = ServableState("AVAILABLE")


class Run:
    """A run that serves ``models``, and its control API."""

    def __init__(self, models: Mapping[str, tuple[int, ...]], script_model: str | None = None) -> None:
        self.readiness = Readiness(Heartbeats(10.0))
        instances = (INSTANCE,) if models else ()
        self.readiness.expect(instances, models)
        protocol = OpenInferenceApi(
            lambda: self.readiness, lambda: ready_versions_of(self), Path("no router")
        )
        self.control_api = ControlApi(lambda: self, protocol.routes)
        self.deployment: Deployment | None = deployment(
            "a", models=models, instances=instances, rest_api=True, script_model=script_model
        )

    def serves(self, _group: str) -> bool:
        """True: there is one gunicorn."""
        return True

    def serve(self) -> None:
        self.readiness.state = StackState.READY
        self.readiness.heartbeats.hear(WorkerState(17, WorkerPhase.SERVES))
        for servable in tuple(self.readiness.servables):
            self.readiness.note(0, servable.model, {servable.version or 1: AVAILABLE})

    def response(self, method: str, path: str, body: bytes = b"") -> HttpResponse:
        return asyncio.run(self.control_api.respond(HttpRequest(method, path, {}, body)))

    def send(self, method: str, path: str, body: bytes = b"") -> tuple[int, Any]:
        response = self.response(method, path, body)
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


def ready_versions(run: Run) -> tuple[int, Any]:
    return run.send("GET", "/ready-versions")


def test_only_versions_that_serve_are_ready() -> None:
    """Those that nobody has named, too; none of a model server that is away."""
    run = Run({"b": (9, 10), "a": ()})
    run.serve()
    run.readiness.note(0, "b", {9: AVAILABLE, 10: ServableState("END", "INTERNAL: it fails")})
    run.readiness.note(0, "a", {7: AVAILABLE, 8: ServableState("LOADING")})

    assert ready_versions(run) == (200, {"a": [7], "b": [9]})
    run.readiness.lose(0)
    assert ready_versions(run) == (200, {})


def test_a_script_model_has_one_version() -> None:
    run = Run({}, script_model="/opt/ml/model")
    assert ready_versions(run) == (200, {})
    run.serve()

    assert ready_versions(run) == (200, {"a": [1]})


@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", "/v2/models/stats"), ("GET", "/v2/nowhere"), ("GET", "/v2/systemsharedmemory/status")],
)
def test_what_is_not_there_is_404(method: str, path: str) -> None:
    """Triton's extensions are as unknown as any other path."""
    status, body = Run({"a": (1,)}).send(method, path)

    assert status == 404
    assert body["error"]


def test_health_is_that_of_ping() -> None:
    """Alive from the start, ready with all that /ping looks at."""
    run = Run({"a": (1,)})

    assert run.send("GET", "/v2/health/live") == (200, {"live": True})
    assert run.send("GET", "/v2/health/ready") == (503, {"live": True, "ready": False})
    run.serve()
    assert run.send("GET", "/v2/health/ready") == (200, {"live": True, "ready": True})


def test_the_server_names_only_extensions_that_are_there() -> None:
    assert Run({"a": (1,)}).send("GET", "/v2") == (
        200,
        {"name": "tfs_proxy", "version": __version__, "extensions": ["binary_tensor_data"]},
    )
