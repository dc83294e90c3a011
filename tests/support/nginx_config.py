"""The text of nginx.conf for one archive, and the maps that decide about traces in it."""

import re
from pathlib import Path

from msgspec.structs import replace

from support.deployments import deployment
from tfs_proxy.run.nginx import config
from tfs_proxy.settings.settings import Settings
from tfs_proxy.values.deployment import Doors, TraceSampling
from tfs_proxy.values.layout import Workspace

SERVING = deployment(doors=Doors(rest_api=True))


def nginx_config(traces: TraceSampling | None = None) -> str:
    """The whole configuration for one archive."""
    workspace = Workspace(Path("/run/tfs"))
    served = replace(SERVING, observation=replace(SERVING.observation, traces=traces))
    proxy = config.ProxyConfig("0.0.0.0:8080", ("unix:web.sock",), workspace.control_socket, serving=served)
    return config.config(proxy, Settings.from_env({}), workspace)


def trace_maps(sampling: TraceSampling) -> str:
    """The maps of ``$traced`` and ``$valid_traceparent``, for the http block."""
    text = nginx_config(sampling)
    found = re.search(
        r'^ *(?:split_clients "\$request_id"|map "") \$trace_share .*?\$valid_traceparent \{.*?\n    \}',
        text,
        re.DOTALL | re.MULTILINE,
    )
    assert found is not None
    return found[0]
