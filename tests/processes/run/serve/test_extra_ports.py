"""Extra ports have all that the HTTP port has, from the first moment to the drain."""

import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from support import gates
from support.archives import NEEDS_NGINX, pack, without_nginx
from support.multi_model import serving_many
from support.ports import free_port
from support.stack import serving

TEXT = {"Content-Type": "text/plain"}


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """A script that is the model."""
    return pack(tmp_path / "model.tar.gz", {"code/inference.py": gates.MODEL_SCRIPT})


@NEEDS_NGINX
def test_an_extra_port_has_every_route_and_is_drained(archive: Path, tmp_path: Path) -> None:
    """A request that came by it before SIGTERM is answered, and then the port is closed."""
    extra = free_port()
    env = {"TFS_PROXY_EXTRA_PORTS": str(extra)}
    with (
        serving(str(archive), env=env) as stack,
        gates.gate(tmp_path / "gate") as gate,
        ThreadPoolExecutor() as pool,
    ):
        assert stack.ask("GET", "/ping", port=extra).status == 200
        assert stack.ask("GET", "/metrics", port=extra).status == 200
        held = pool.submit(stack.ask, "POST", "/invocations", gate.mark(), TEXT, port=extra)
        gate.wait_for()
        stack.process.send_signal(signal.SIGTERM)
        stack.wait_until_refused(extra)
        gate.open()

        assert held.result().body == b"answered"
        assert stack.wait() == 0


@NEEDS_NGINX
def test_an_extra_port_has_the_models_of_many() -> None:
    """In multi-model mode, too."""
    extra = free_port()
    with serving_many(env={"TFS_PROXY_EXTRA_PORTS": str(extra)}) as stack:
        assert stack.ask("GET", "/models", port=extra).json == {"models": []}


def test_workers_that_listen_themselves_have_one_port(archive: Path) -> None:
    """Without nginx this setting, and that of packed answers, have no effect, and the log says so."""
    extra = free_port()
    env = {**without_nginx(), "TFS_PROXY_EXTRA_PORTS": str(extra), "TFS_PROXY_GZIP": "true"}
    with serving(str(archive), env=env) as stack:
        for name in ("EXTRA_PORTS", "GZIP"):
            stack.wait_for_log(f"TFS_PROXY_{name} has no effect without nginx")
        stack.wait_until_refused(extra)
