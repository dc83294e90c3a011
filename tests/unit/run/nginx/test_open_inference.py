"""Where nginx sends what clients of the Open Inference Protocol and of KServe ask for."""

import re
from pathlib import Path

import pytest
from msgspec.structs import replace

from support.deployments import INSTANCE, deployment
from tfs_proxy.run.nginx import config
from tfs_proxy.run.nginx.many_models import MultiModelRoutes
from tfs_proxy.settings.settings import Settings
from tfs_proxy.values.deployment import Deployment
from tfs_proxy.values.layout import Workspace

WORKSPACE = Workspace(Path("/run/tfs"))
SERVING = deployment(rest_api=True)
CONTROL_API, WORKERS, MODEL_SERVER, NEW_CONTROL_API, GATE = (
    "http://control_api;",
    "http://web;",
    "http://models;",
    "http://control_api_anew",
    "http://$kept_workers",
)
SHARED = MultiModelRoutes(600, instances=(INSTANCE,))


def config_of(serving: Deployment | None, routes: MultiModelRoutes | None, **environ: str) -> str:
    proxy = config.ProxyConfig(
        "0.0.0.0:8080",
        () if routes else ("unix:web.sock",),
        WORKSPACE.control_socket,
        serving=serving,
        multi_model=routes,
    )
    return config.config(proxy, Settings.from_env(environ), WORKSPACE)


def location_of(text: str, path: str) -> str:
    """The body of the location that nginx chooses for a path: exact, else the first pattern, else the prefix."""
    found = re.findall(r"\n        location (=|~\*|~)? ?(\S+|\".*?\") \{\n(.*?)\n        \}", text, re.DOTALL)
    for kind, pattern, body in found:
        if kind == "=" and pattern == path:
            return str(body)
    for kind, pattern, body in found:
        if kind.startswith("~"):
            python = pattern.strip('"').replace("(?<", "(?P<").replace(r"\z", r"\Z")
            if re.search(python, path, re.IGNORECASE if kind == "~*" else 0):
                return str(body)
    return next((str(body) for kind, pattern, body in found if not kind and pattern == "/"), "")


@pytest.mark.parametrize(
    ("path", "target"),
    [
        ("/v2", CONTROL_API),
        ("/v2/", CONTROL_API),
        ("/v2/health/live", CONTROL_API),
        ("/v2/health/ready", CONTROL_API),
        ("/v2/repository/index", WORKERS),
        ("/v2/models/m", WORKERS),
        ("/v2/models/m/infer", WORKERS),
        ("/", WORKERS),
        ("/openapi.json", WORKERS),
        ("/v1/models", CONTROL_API),
        ("/v1/models/m", WORKERS),
        ("/V1/Models/m", WORKERS),
        ("/v1/models/m/metadata", MODEL_SERVER),
        ("/v1/models/m:predict", MODEL_SERVER),
        ("/v1/models/m/versions/1", MODEL_SERVER),
    ],
)
def test_the_paths_of_one_archive(path: str, target: str) -> None:
    """The server's share goes to the control API, a model's to its workers."""
    assert f"proxy_pass {target}" in location_of(config_of(SERVING, None), path)


@pytest.mark.parametrize("path", ["/v1/models", "/v1/models/m"])
def test_without_the_rest_api_there_is_no_list_of_its_models(path: str) -> None:
    """Workers answer 404."""
    unpublished = replace(SERVING, rest_api=False)

    assert f"proxy_pass {WORKERS}" in location_of(config_of(unpublished, None), path)


@pytest.mark.parametrize("routes", [SHARED, MultiModelRoutes(600)])
@pytest.mark.parametrize(
    ("path", "target"),
    [
        ("/", CONTROL_API),
        ("/v2", CONTROL_API),
        ("/v2/health/ready", CONTROL_API),
        ("/models/a", f"{NEW_CONTROL_API}$uri$is_args$args;"),
        ("/v2/models/a.b/infer", f"{GATE}$path_at_gate;"),
        ("/v2/models/a", f"{GATE}$path_at_gate;"),
        ("/v1/models", CONTROL_API),
        ("/v1/models/a.b", f"{GATE}$path_at_gate;"),
    ],
)
def test_the_paths_of_many_models(routes: MultiModelRoutes, path: str, target: str) -> None:
    """A model's go to its gate, whether it has workers of its own or not."""
    text = config_of(None, routes)
    body = location_of(text, path)

    assert target.removeprefix("http://") in body
    if target.startswith(GATE):
        assert "if (!-x m/$model.sock)" in body or path.startswith("/v1")


def test_a_client_that_hangs_up_does_not_stop_a_load() -> None:
    body = location_of(config_of(None, MultiModelRoutes(600)), "/models")

    assert "proxy_read_timeout 605s;" in body
    assert "proxy_ignore_client_abort on;" in body
