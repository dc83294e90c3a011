"""With an adaptive limit nothing goes past the workers, which hold it."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from tfs_proxy.deployment import Deployment, Instance
from tfs_proxy.layout import Workspace
from tfs_proxy.settings import Settings
from tfs_proxy.supervisor.nginx import config

WORKSPACE = Workspace(Path("/run/tfs"))
SERVING = Deployment(
    default_model="m",
    models={"m": (1,)},
    instances=(Instance(0, rest_port=1, grpc_port=2, grpc_socket=""),),
    script=None,
    import_paths=(),
    max_payload_bytes=1,
    request_timeout_seconds=1.0,
    rest_api=True,
)


@pytest.mark.parametrize("seconds", [None, 0.05])
def test_inferences_reach_the_model_server_past_the_workers_only_without_a_limit(
    seconds: float | None,
) -> None:
    """Neither by /invocations nor by TF Serving's REST API."""
    serving = replace(SERVING, adaptive_limit_seconds=seconds)
    proxy = config.ProxyConfig("0.0.0.0:8080", ("unix:web.sock",), WORKSPACE.control_socket, serving=serving)
    text = config.config(proxy, Settings.from_env({}), WORKSPACE)
    assert ("proxy_pass http://models" in text) is (seconds is None)
