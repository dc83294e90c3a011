"""Links by which nginx finds a model that is ready."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from tfs_proxy.run.nginx.many_models import links_of
from tfs_proxy.values.deployment import BodyLimits, Deployment, TimeLimits
from tfs_proxy.values.layout import Workspace

RUN = Path("/run")
PLAIN = Deployment("a", {"a": (1,)}, (), None, (), BodyLimits(1), TimeLimits(1.0))
GATES = ("m/a.sock", "m/a.served", "m/a.loaded")
COMMON = {"d/a": "s/0", **dict.fromkeys(GATES, "common.sock")}


@pytest.mark.parametrize(
    ("deployment", "links"),
    [
        (PLAIN, {**COMMON, "f/a": "s/0/deployment.json"}),
        (replace(PLAIN, default_accept="text/csv"), COMMON),
        (replace(PLAIN, script="inference.py"), dict.fromkeys(GATES, "s/0/web.sock")),
    ],
)
def test_links_lead_to_what_serves_the_model(deployment: Deployment, links: dict[str, str]) -> None:
    """Common workers look for its folder, and JSON that needs no worker goes by the last link."""
    found = links_of("a", deployment, Workspace(RUN), Workspace(RUN / "s/0"))

    assert list(found.items()) == [(RUN / link, RUN / target) for link, target in links.items()]
