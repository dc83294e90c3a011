"""What an nginx says of itself decides what its configuration may name."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from tfs_proxy.run.nginx import config
from tfs_proxy.run.nginx.config import NginxBuild
from tfs_proxy.run.nginx.proxy import read_build
from tfs_proxy.settings.settings import Settings
from tfs_proxy.values.deployment import BodyLimits, Deployment, Instance, TimeLimits
from tfs_proxy.values.layout import Workspace

WORKSPACE = Workspace(Path("/run/tfs"))


@pytest.mark.parametrize(
    ("says", "build"),
    [
        (
            "nginx version: nginx/1.26.3\nconfigure arguments: --with-http_stub_status_module --with-http_sub_module",
            NginxBuild((1, 26, 3), counts_connections=True, edits_answers=True),
        ),
        (
            "nginx version: nginx/1.18.0\nconfigure arguments:",
            NginxBuild((1, 18, 0), counts_connections=False, edits_answers=False),
        ),
        ("?", NginxBuild((0,), counts_connections=False, edits_answers=False)),
    ],
)
def test_the_build_is_read_from_the_programs_own_words(says: str, build: NginxBuild, tmp_path: Path) -> None:
    program = tmp_path / "nginx"
    program.write_text(f"#!/bin/sh\nprintf '%s' '{says}' >&2\n")
    program.chmod(0o755)

    assert read_build(str(program)) == build


@pytest.mark.parametrize("counts", [True, False])
def test_only_an_nginx_that_counts_is_asked_how_many_requests_it_has(counts: bool) -> None:
    """Another one does not know the variable, and would not start; what a client sends never gets through."""
    proxy = config.ProxyConfig(
        "0.0.0.0:8080", (), WORKSPACE.control_socket, build=NginxBuild(counts_connections=counts)
    )
    text = config.config(proxy, Settings.from_env({}), WORKSPACE)

    assert ("$connections_writing" in text) is counts
    assert ('proxy_set_header X-Tfs-Proxy-In-Flight "";' in text) is not counts


def test_answers_that_nginx_can_not_edit_are_those_of_workers() -> None:
    """Requests whose answers are one line do not go past them."""
    serving = Deployment(
        "m", {"m": (1,)}, (Instance(0, 1, 2, "g"),), None, (), BodyLimits(1000), TimeLimits(60.0)
    )
    proxy = config.ProxyConfig("0.0.0.0:8080", ("unix:w",), WORKSPACE.control_socket, serving=serving)
    settings = Settings.from_env({})
    text = config.config(proxy, settings, WORKSPACE)
    without = config.config(replace(proxy, build=NginxBuild(edits_answers=False)), settings, WORKSPACE)

    assert "sub_filter" in text
    assert '"application/json" 1;' in text
    assert "sub_filter" not in without
    assert '"application/json" 1;' not in without
    assert '"*/*" 1;' in without


@pytest.mark.parametrize(
    ("cores", "descriptors", "most"),
    [(1, 100_000, 4096), (2, 100_000, 4096), (4, 100_000, 8192), (64, 100_000, 8192), (64, 1024, 768)],
)
def test_connections_follow_cores_and_leave_descriptors(cores: int, descriptors: int, most: int) -> None:
    """A small machine need not pay for as many as a large one may have; a quarter of descriptors is for files."""
    assert config.most_connections(cores, descriptors) == most
