"""An image whose port Docker publishes: its own address is asked, since Docker's proxy accepts for it."""

import json
import os
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.ports import free_port
from support.toy_container.judged import TESTS
from tfs_proxy.cli import main

CHECKS = "start-stop/port-opens,invocations/accepts-in-250-ms,invocations/accepts-in-250-ms-busy"
LOOPBACK = "127.0.0.1"
STAND_IN = """\
#!{python}
import json, os, pathlib, signal, subprocess, sys

words, folder = sys.argv[1:], pathlib.Path(__file__).parent
if words[:2] == ["image", "inspect"]:
    print(json.dumps([{{"Config": {{}}}}]))
elif words[0] == "run":
    argv = [{python!r}, "-m", "support.toy_container", "--port", "{inside}", "--fault", "{fault}"]
    toy = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    (folder / "pid").write_text(str(toy.pid))
elif words[0] == "port":
    print("127.0.0.1:{published}")
elif words[0] == "inspect" and "Networks" in words[2]:
    print(json.dumps({{"bridge": {{"IPAddress": "127.0.0.1"}}}}))
elif words[0] == "inspect":
    print(json.dumps({{"Running": True, "ExitCode": 0, "Pid": {pid}}}))
elif words[0] == "rm":
    os.kill(int((folder / "pid").read_text()), signal.SIGKILL)
"""


@pytest.fixture
def published() -> Iterator[int]:
    """A port that accepts connections whatever the container does, as Docker's proxy does."""
    with socket.create_server((LOOPBACK, 0), backlog=256) as proxy:
        yield proxy.getsockname()[1]


@pytest.mark.parametrize(
    ("is_here", "fault", "status", "said"),
    [
        (True, "slow-accept", 1, "FAILED invocations/accepts-in-250-ms-busy"),
        (False, "no-head", 2, "Docker's proxy accepts connections here"),
    ],
)
def test_a_proxy_that_accepts_hides_nothing(
    is_here: bool,
    fault: str,
    status: int,
    said: str,
    published: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """A container of one worker and a short queue is found at its own address; without it, none is judged."""
    inside = free_port()
    port = published if is_here else inside
    docker = tmp_path / "docker"
    docker.write_text(
        STAND_IN.format(
            python=sys.executable,
            inside=inside,
            published=port,
            pid=os.getpid() if is_here else 0,
            fault=fault,
        )
    )
    docker.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", str(TESTS))
    requests = tmp_path / "requests.json"
    slow = {"instances": [1.0], "slow": True}
    good = {"content_type": "application/json", "body": {"instances": [1.0]}}
    requests.write_text(json.dumps({"good": good, "slow": {**good, "body": slow}}))
    # The stand-in's container listens on the port that it was made with, whatever an image would do.
    monkeypatch.setattr("tfs_proxy.tools.conform.targets.DEFAULT_PORT", inside)

    assert main(["conform", "--image", "toy", "--requests", str(requests), "--only", CHECKS]) == status
    assert said in capfd.readouterr().out
