"""`tfs-proxy tune` with a real model: a search that is interrupted, and one that can't begin."""

import json
import os
import signal
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

from support.processes import descendants, wait_until_ended

TUNE = (sys.executable, "-m", "tfs_proxy.cli", "tune")
ENV = {**os.environ, "SAGEMAKER_GUNICORN_WORKERS": "1"}
"""Each worker costs a third of a start."""


def test_ctrl_c_prints_what_is_known(saved_models: Path, tmp_path: Path) -> None:
    """The defaults are measured with a request made of the signature; then all processes end."""
    model, picture = saved_models / "half_plus_two", tmp_path / "tune.svg"
    search = subprocess.Popen(
        [*TUNE, model, "--p99", "30s", "--budget", "59", "--json", "-o", picture],
        env=ENV,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert search.stderr is not None
    progress = next(line for line in search.stderr if "defaults: " in line)
    running = list(descendants(search.pid))
    os.killpg(search.pid, signal.SIGINT)
    printed, said = search.communicate()

    assert search.returncode == 130, said
    assert "req/s, p99 " in progress
    found = json.loads(printed)
    assert found["environment"] == {}
    assert found["requests_per_second"] > 0
    assert [point["settings"] for point in found["points"]] == ["defaults"]
    ET.parse(picture)
    wait_until_ended(running)


def test_a_refused_request_ends_the_search(saved_models: Path, tmp_path: Path) -> None:
    (tmp_path / "request.json").write_text('{"instances": ["text"]}')

    done = subprocess.run(
        [*TUNE, saved_models / "half_plus_two", "--p99", "1s", "--requests", tmp_path / "request.json"],
        env=ENV,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 2
    assert "Request 1 is refused with 400" in done.stderr
