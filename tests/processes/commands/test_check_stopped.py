"""`tfs-proxy check` where it is stopped while it imports the script."""

import os
import signal
import subprocess
import sys
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


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_check_that_is_stopped_leaves_nothing(tmp_path: Path, number: signal.Signals) -> None:
    """The script's process ends, the folder goes, and one sentence is the last word."""
    home, begun = tmp_path / "home", tmp_path / "begun"
    home.mkdir()
    os.mkfifo(begun)
    files: dict[str, str | bytes] = {
        "m/1/saved_model.pb": SAVED_MODEL,
        "code/inference.py": HANGS.format(begun=str(begun)),
    }
    archive = pack(tmp_path / "model.tar.gz", files)
    running = subprocess.Popen(
        [sys.executable, "-m", "tfs_proxy.cli", "check", str(archive)],
        env={**os.environ, "TFS_PROXY_HOME": str(home)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    begun.read_text()  # returns when the import has written to it

    running.send_signal(number)
    # The script's process has standard error, too: this would not return as long as it lives.
    _, said = running.communicate(timeout=LIMIT_SECONDS)

    assert running.returncode == 128 + signal.SIGINT
    assert said.splitlines()[-1] == "tfs-proxy: stopped"
    assert "Traceback" not in said
    assert list(home.iterdir()) == []
