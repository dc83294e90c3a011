"""The control API's share of the Open Inference Protocol, for a run of one archive."""

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from support.deployments import INSTANCE, deployment
from tfs_proxy import __version__
from tfs_proxy.observe.metric import Distribution
from tfs_proxy.observe.request_counts import Inferences
from tfs_proxy.run.control_api import ControlApi, served_models
from tfs_proxy.run.heartbeats import Heartbeats
from tfs_proxy.run.open_inference import InferenceTimes, OpenInferenceApi, ServedArchive
from tfs_proxy.run.readiness import Readiness, ServableState, StackState
from tfs_proxy.values.deployment import Deployment, WorkerPhase, WorkerState
from tfs_proxy.wire.http_messages import HttpRequest, HttpResponse

AVAILABLE = ServableState("AVAILABLE")
NOTHING = {"count": 0, "ns": 0}


class Run:
    """A run that serves ``models``, and its control API."""

    def __init__(self, models: Mapping[str, tuple[int, ...]], script_model: str | None = None) -> None:
        self.readiness = Readiness(Heartbeats(10.0))
        self.times = InferenceTimes()
        instances = (INSTANCE,) if models else ()
        self.readiness.expect(instances, models)
        archive = ServedArchive(lambda: self)
        protocol = OpenInferenceApi(
            lambda: self.readiness, archive, lambda: self.times, {"stable": 2}, Path("no router")
        )
        routes = {**protocol.routes, **served_models(archive.served)}
        self.control_api = ControlApi(lambda: self, routes)
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


def test_the_index_has_every_version_with_its_state() -> None:
    """Ascending by number; with the reason if it is not ready, and only what is ready if asked so."""
    run = Run({"b": (9, 10), "a": (1,)})
    run.serve()
    run.readiness.note(0, "b", {9: AVAILABLE, 10: ServableState("END", "INTERNAL: it fails")})
    ready = [
        {"name": "a", "version": "1", "state": "READY", "reason": ""},
        {"name": "b", "version": "9", "state": "READY", "reason": ""},
    ]
    failed = {"name": "b", "version": "10", "state": "UNAVAILABLE", "reason": "INTERNAL: it fails"}

    assert run.send("POST", "/v2/repository/index") == (200, [*ready, failed])
    assert run.send("POST", "/v2/repository/index", b'{"ready": true}') == (200, ready)


def test_a_version_that_nobody_has_named_is_listed_once_it_is_reported() -> None:
    """A model server that follows its folders says which versions there are; until then there is no number."""
    run = Run({"a": ()})
    (status, (before,)) = run.send("POST", "/v2/repository/index")
    run.readiness.note(0, "a", {7: AVAILABLE, 8: ServableState("LOADING")})

    assert (status, before["state"], "version" in before) == (200, "UNAVAILABLE", False)
    assert run.send("POST", "/v2/repository/index")[1] == [
        {"name": "a", "version": "7", "state": "READY", "reason": ""},
        {"name": "a", "version": "8", "state": "LOADING", "reason": "LOADING"},
    ]


def test_a_script_model_has_one_version() -> None:
    run = Run({}, script_model="/opt/ml/model")
    assert run.send("POST", "/v2/repository/index")[1][0]["state"] == "UNAVAILABLE"
    run.serve()

    entry = {"name": "a", "version": "1", "state": "READY", "reason": ""}
    assert run.send("POST", "/v2/repository/index")[1] == [entry]
    assert run.send("GET", "/v2/models/a/stats")[1]["model_stats"][0]["version"] == "1"


@pytest.mark.parametrize("action", ["load", "unload"])
def test_one_archive_can_not_be_changed(action: str) -> None:
    """The sentence says how models could be."""
    status, body = Run({"a": (1,)}).send("POST", f"/v2/repository/models/a/{action}")

    assert status == 400
    assert "--multi-model" in body["error"]


def test_statistics_are_the_counts_and_the_stages() -> None:
    """Nanoseconds of whole requests and of the stages as Triton calls them, which every success has gone through."""
    run = Run({"a": (1, 2)})
    run.times = InferenceTimes(
        {
            ("a", "1", True): Inferences(3, 0.5),
            ("a", "latest", True): Inferences(2, 0.25, 1.5),
            ("a", "2", True): Inferences(1, 0.25),
            ("a", "latest", False): Inferences(1, 0.125),
            ("b", "latest", True): Inferences(9, 9.0),
        },
        {
            ("wait", "a"): Distribution((1.0,), (2, 1), 0.5),
            ("read", "a"): Distribution((1.0,), (3, 0), 0.25),
            ("convert", "a"): Distribution((1.0,), (2, 0), 0.125),
            ("model_server", "a"): Distribution((1.0,), (2, 0), 0.25),
            ("model_server", "b"): Distribution((1.0,), (9, 0), 9.0),
        },
    )
    status, body = run.send("GET", "/v2/models/a/stats")
    first, last = body["model_stats"]

    assert status == 200
    assert (first["version"], first["inference_count"], first["execution_count"]) == ("1", 3, 3)
    assert first["inference_stats"]["success"] == {"count": 3, "ns": 500_000_000}
    assert first["inference_stats"]["compute_infer"] == {"count": 3, "ns": 0}
    assert (last["version"], last["inference_count"], last["last_inference"]) == ("2", 3, 1500)
    assert last["inference_stats"] == {
        "success": {"count": 3, "ns": 500_000_000},
        "fail": {"count": 1, "ns": 125_000_000},
        "queue": {"count": 3, "ns": 500_000_000},
        "compute_input": {"count": 3, "ns": 375_000_000},
        "compute_infer": {"count": 3, "ns": 250_000_000},
        "compute_output": {"count": 3, "ns": 0},
        "cache_hit": NOTHING,
        "cache_miss": NOTHING,
    }
    assert run.send("GET", "/v2/models/stats") == (200, body)
    for version in ("2", "stable"):
        assert run.send("GET", f"/v2/models/a/versions/{version}/stats")[1] == {"model_stats": [last]}


def test_no_request_is_shorter_than_its_stages() -> None:
    """nginx's clock has milliseconds: what is missing is added to those that went well."""
    run = Run({"a": (1,)})
    run.times = InferenceTimes(
        {("a", "latest", True): Inferences(2, 0.25), ("a", "latest", False): Inferences(1, 0.125)},
        {
            ("wait", "a"): Distribution((1.0,), (3, 0), 0.25),
            ("model_server", "a"): Distribution((1.0,), (2, 0), 0.25),
        },
    )
    (stats,) = run.send("GET", "/v2/models/a/stats")[1]["model_stats"]

    assert stats["inference_stats"]["success"] == {"count": 2, "ns": 375_000_000}
    assert stats["inference_stats"]["fail"] == {"count": 1, "ns": 125_000_000}


@pytest.mark.parametrize("path", ["/v2/models/x/stats", "/v2/models/a/versions/9/stats", "/v2/nowhere"])
def test_what_is_not_there_is_404(path: str) -> None:
    status, body = Run({"a": (1,)}).send("GET", path)

    assert status == 404
    assert body["error"]


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/v2/systemsharedmemory/region/r/register"),
        ("POST", "/v2/cudasharedmemory/unregister"),
        ("GET", "/v2/systemsharedmemory/status"),
    ],
)
def test_shared_memory_is_refused_in_words(method: str, path: str) -> None:
    status, body = Run({"a": (1,)}).send(method, path, b"{}")

    assert status == 501
    assert "shared memory is not supported" in body["error"]


@pytest.mark.parametrize("body", [b"{", b"[]", b'{"ready": 1}'])
def test_a_malformed_body_is_400(body: bytes) -> None:
    """The sentence says what is wrong with it."""
    status, answer = Run({"a": (1,)}).send("POST", "/v2/repository/index", body)

    assert status == 400
    assert answer["error"].startswith(("the body is not", "ready is not"))


def test_health_is_that_of_ping() -> None:
    """Alive from the start, ready with all that /ping looks at."""
    run = Run({"a": (1,)})

    assert run.send("GET", "/v2/health/live") == (200, {"live": True})
    assert run.send("GET", "/v2/health/ready") == (503, {"live": True, "ready": False})
    run.serve()
    assert run.send("GET", "/v2/health/ready") == (200, {"live": True, "ready": True})


def test_the_server_names_only_extensions_that_are_there() -> None:
    """The archive of the start stays, so there is no repository to change."""
    extensions = ["binary_tensor_data", "model_configuration", "statistics"]

    assert Run({"a": (1,)}).send("GET", "/v2") == (
        200,
        {"name": "tfs_proxy", "version": __version__, "extensions": extensions},
    )


def test_kserve_s_clients_find_the_models() -> None:
    """A script model has nothing in TF Serving's API, so there is no list."""
    assert Run({"b": (1,), "a": (1,)}).send("GET", "/v1/models") == (200, {"models": ["a", "b"]})
    assert Run({}, script_model="/opt/ml/model").send("GET", "/v1/models")[0] == 404


def test_a_version_on_a_model_server_that_is_away_is_loading() -> None:
    run = Run({"a": (1,)})
    run.serve()
    run.readiness.lose(0)

    assert run.send("POST", "/v2/repository/index")[1][0]["state"] == "LOADING"
