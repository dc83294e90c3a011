"""Our own container keeps the contract, with nginx and without."""

import json
import shlex
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from tfs_proxy.cli import main

pytestmark = pytest.mark.tensorflow
SCRIPT = """
import json, time

def handler(data, context):
    request = json.loads(data.read() or "null")
    if not isinstance(request, dict):
        raise ValueError("it must be an object")
    time.sleep(request.get("seconds", 0))
    return parts() if request.get("stream") else json.dumps(request), "application/json"

async def stream(messages, context):
    async for message in messages:
        yield message

def parts():
    for number in range(3):
        time.sleep(0.1)
        yield b"%d\\n" % number
"""
TYPE = "application/json"
REQUESTS = {
    "good": {"content_type": TYPE, "body": {"instances": [1.0]}, "expected_content_type": TYPE},
    "slow": {"content_type": TYPE, "body": {"seconds": 0.6}},
    "streaming": {"content_type": TYPE, "body": {"stream": True}},
    "bad": {"content_type": TYPE, "body": "[1.0, "},
}
SERVE = [sys.executable, "-m", "tfs_proxy.cli", "serve"]


@pytest.fixture
def judged(saved_models: Path, tmp_path: Path) -> list[str]:
    """The words of `conform` up to its capabilities."""
    shutil.copytree(saved_models / "half_plus_two", tmp_path / "model" / "half_plus_two")
    (tmp_path / "model" / "code").mkdir()
    (tmp_path / "model" / "code" / "inference.py").write_text(SCRIPT)
    (tmp_path / "requests.json").write_text(json.dumps(REQUESTS))
    command = f"{shlex.join(SERVE)} {{model}} --port {{port}}"
    words = ["conform", "--command", command, "--model", str(tmp_path / "model")]
    return [*words, "--requests", str(tmp_path / "requests.json"), "--json", str(tmp_path / "results.json")]


def failed(folder: Path) -> list[Any]:
    """Musts, and all that is said of bidirectional streams."""
    checks = json.loads((folder / "results.json").read_text())["checks"]
    found = [check for check in checks if check["outcome"] == "failed"]
    return [check for check in found if check["level"] == "must" or "websocket" in check["name"]]


@pytest.mark.nginx
def test_with_nginx(judged: list[str], tmp_path: Path) -> None:
    status = main([*judged, "--pipeline", "--multi-model", "--websocket"])

    assert failed(tmp_path) == []
    assert status == 0


def test_without_nginx(judged: list[str], tmp_path: Path) -> None:
    """What nginx does otherwise: requests, their bodies, connections, and the end."""
    words = ["--only", "ping,invocations,headers,errors,streaming,start-stop/sigterm-drains"]
    status = main([*judged, *words, "--env", "TFS_PROXY_NGINX=false"])

    assert failed(tmp_path) == []
    assert status == 0
