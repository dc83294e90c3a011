"""Addresses that a server listens on by itself, and the line that says who can connect."""

import os
import socket
import subprocess
from contextlib import closing
from pathlib import Path

import pytest

from support.archives import NEEDS_NGINX, without_nginx
from support.building import ROOT
from support.multi_model import script_model
from support.running import START_SECONDS
from support.stack import Stack
from tfs_proxy.run.host import sockets
from tfs_proxy.run.host.sockets import default_host

SCRIPT = "def model_fn(model_dir):\n    return 1\n\n\ndef transform_fn(model, data, content_type, accept):\n    return 'x'\n"
HAS_IPV6 = socket.has_ipv6 and Path("/proc/net/if_inet6").exists()


class Unbound(Stack):
    """A stack whose command line names no address."""

    def arguments(self, words: "tuple[str, ...]") -> list[str]:  # type: ignore[override]
        """The port alone."""
        return [*words, "--port", str(self.port)]


@pytest.mark.parametrize("front", [pytest.param({}, marks=NEEDS_NGINX, id="nginx"), without_nginx()])
@pytest.mark.parametrize(
    ("choice", "who"), [("local", "this machine alone"), ("all", "whoever reaches this machine")]
)
def test_both_families_are_listened_on(tmp_path: Path, front: dict[str, str], choice: str, who: str) -> None:
    """Each by a socket of its own; the ready line says who can connect, and a rival's port is not shared."""
    archive = script_model(tmp_path / "model.tar.gz", SCRIPT)
    stack = Unbound(str(archive), env={**front, "TFS_PROXY_HOST": choice})
    try:
        stack.wait_ready(START_SECONDS)
        stack.wait_for_log("ready: ")
        assert f"ready: http://localhost:{stack.port}, for {who}  try: curl" in stack.log
        for host in ("127.0.0.1", "::1") if HAS_IPV6 else ("127.0.0.1",):
            stack.host = host
            assert stack.invoke("1", "text/plain").status == 200
    finally:
        stack.host = "127.0.0.1"
        stack.close()


def test_the_images_health_check_asks_an_address_that_is_listened_on(tmp_path: Path) -> None:
    """The first that TFS_PROXY_HOST names: nothing listens on 127.0.0.1."""
    archive = script_model(tmp_path / "model.tar.gz", SCRIPT)
    stack = Unbound(str(archive), env={"TFS_PROXY_HOST": "127.0.0.2,127.0.0.3"})
    stack.host = "127.0.0.2"
    with closing(stack):
        stack.wait_ready(START_SECONDS)
        env = {**os.environ, "TFS_PROXY_HOME": str(stack.home)}
        assert subprocess.run([ROOT / "container/healthcheck"], env=env, check=False).returncode == 0
        stack.wait_for_log(f"ready: http://127.0.0.2:{stack.port}, ")


@pytest.mark.parametrize(
    ("environ", "file", "host"),
    [
        ({}, "nothing", "local"),
        ({}, ".dockerenv", "all"),
        ({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, "nothing", "all"),
        ({"AWS_CONTAINER_CREDENTIALS_RELATIVE_URI": "/v2"}, "nothing", "all"),
        ({"SAGEMAKER_MULTI_MODEL": "true", "SAGEMAKER_BIND_TO_PORT": "9000"}, "nothing", "local"),
    ],
)
def test_containers_and_platforms_open_all_addresses(
    tmp_path: Path, environ: dict[str, str], file: str, host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a user sets on a laptop does not."""
    (tmp_path / ".dockerenv").touch()

    monkeypatch.setattr(sockets, "CONTAINER_FILES", [tmp_path / file])
    assert default_host(environ) == host
