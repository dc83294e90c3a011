"""`tfs-proxy transform --model`: the serving stack of a job lives as long as the job, and no longer."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from support.archives import stand_in_archive, stand_in_program
from support.processes import descendants, wait_until_ended
from support.transform_command import outputs, transform

SCRIPT = """
def handler(data, context):
    body = data.read()
    if body == b"slow":
        import time
        time.sleep(30)
    return body.upper(), "text/plain"
"""


@pytest.fixture
def words(tmp_path: Path) -> list[str]:
    archive = stand_in_archive(tmp_path / "model.tar.gz", SCRIPT)
    (tmp_path / "in").mkdir()
    flags = ["--model", str(archive), "--model-server", stand_in_program(tmp_path)]
    return [*flags, "--input", str(tmp_path / "in"), "--output", str(tmp_path / "out")]


def test_a_model_is_served_for_the_run(tmp_path: Path, words: list[str]) -> None:
    (tmp_path / "in" / "a").write_text("one\ntwo\n")
    flags = [*words, "--split-type", "Line", "--strategy", "SingleRecord", "--assemble-with", "Line"]
    done = transform(*flags)
    assert done.status == 0, done.log
    assert outputs(tmp_path / "out") == {"a.out": b"ONE\nTWO\n"}
    nothing_left = transform(*flags)
    assert nothing_left.summary["objects"]["already_done"] == 1
    assert "serving" not in nothing_left.log  # nothing to do starts no server
    stand_in_archive(tmp_path / "model.tar.gz", SCRIPT.replace("upper", "title"))
    assert transform(*flags).summary["objects"]["done"] == 1
    assert outputs(tmp_path / "out") == {"a.out": b"One\nTwo\n"}


@pytest.mark.parametrize("killed", [1, 2])
def test_the_stack_ends_with_a_killed_run(tmp_path: Path, words: list[str], killed: int) -> None:
    """kill -9 leaves no server behind, not even where what ties them together is killed, too."""
    (tmp_path / "in" / "a").write_text("slow")
    run = subprocess.Popen(
        [sys.executable, "-m", "tfs_proxy.cli", "transform", *words], stderr=subprocess.PIPE, text=True
    )
    assert run.stderr is not None
    while "request(s) at once" not in run.stderr.readline():
        assert run.poll() is None
    children = list(descendants(run.pid))
    assert len(children) > 2
    for pid in [run.pid, *children][:killed]:
        os.kill(pid, signal.SIGKILL)
    run.wait()
    run.stderr.close()
    wait_until_ended(children)
