"""The toy container, running for the tests that judge it from outside, and the file that says what it takes."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.ports import free_port
from support.toy_container.judged import TESTS

DOCUMENT = {
    "good": {"content_type": "application/json", "body": {"instances": [1.0]}},
    "bad": {"content_type": "application/json", "body": "{"},
}


@pytest.fixture(scope="module")
def requests_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("requests") / "requests.json"
    file.write_text(json.dumps(DOCUMENT))
    return file


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("PYTHONPATH", str(TESTS))
    return f"{sys.executable} -m support.toy_container --port {{port}}"


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    port = free_port()
    words = [sys.executable, "-m", "support.toy_container", "--port", str(port)]
    env = {**os.environ, "PYTHONPATH": str(TESTS)}
    with subprocess.Popen(words, env=env, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert "listening" in process.stdout.readline()
        yield f"http://127.0.0.1:{port}"
        process.terminate()
