"""`tfs-proxy check` where it is stopped while it imports the script."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.archives import SAVED_MODEL, pack

HANGS = """\
import pathlib, time
pathlib.Path({begun!r}).write_text("")
time.sleep(600)
def handler(data, context): ...
"""
LIMIT_SECONDS = 60


@pytest.fixture
def running(tmp_path: Path) -> Iterator["subprocess.Popen[str]"]:
    """A check, in `home`, whose script is being imported."""
    home, begun = tmp_path / "home", tmp_path / "begun"
    home.mkdir()
    os.mkfifo(begun)
    files: dict[str, str | bytes] = {
        "m/1/saved_model.pb": SAVED_MODEL,
        "code/inference.py": HANGS.format(begun=str(begun)),
    }
    archive = pack(tmp_path / "model.tar.gz", files)
    with subprocess.Popen(
        [sys.executable, "-m", "tfs_proxy.cli", "check", str(archive)],
        env={**os.environ, "TFS_PROXY_HOME": str(home)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as running:
        begun.read_text()  # returns when the import has written to it
        yield running


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_check_that_is_stopped_leaves_nothing(
    running: "subprocess.Popen[str]", tmp_path: Path, number: signal.Signals
) -> None:
    """The script's process ends, the folder goes, and one sentence is the last word."""
    running.send_signal(number)
    # The script's process has standard error, too: this would not return as long as it lives.
    _, said = running.communicate(timeout=LIMIT_SECONDS)

    assert running.returncode == 128 + signal.SIGINT
    assert said.splitlines()[-1] == "tfs-proxy: stopped"
    assert "Traceback" not in said
    assert list((tmp_path / "home").iterdir()) == []


def test_a_script_ends_with_a_check_that_is_killed(running: "subprocess.Popen[str]") -> None:
    """Its process has standard error, too: this would not return as long as it lives."""
    running.kill()

    running.communicate(timeout=LIMIT_SECONDS)
