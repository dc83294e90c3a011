"""`tfs-proxy tune` with a real model: one short search, and its interruption."""

import json
import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

TUNE = (sys.executable, "-m", "tfs_proxy.cli", "tune")


def test_a_short_search_measures_the_defaults(saved_models: Path, tmp_path: Path) -> None:
    """With no time for more, the defaults are what is found; the request is made of the signature."""
    model, picture = saved_models / "half_plus_two", tmp_path / "tune.svg"
    done = subprocess.run(
        [*TUNE, model, "--p99", "30s", "--budget", "0.1", "--json", "-o", picture],
        env={**os.environ, "SAGEMAKER_GUNICORN_WORKERS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["environment"] == {}
    assert found["requests_per_second"] > 0
    assert [point["settings"] for point in found["points"]] == ["defaults"]
    assert "defaults: " in done.stderr
    ET.parse(picture)


def test_a_refused_request_ends_the_search(saved_models: Path, tmp_path: Path) -> None:
    """No settings would make it a good one."""
    (tmp_path / "request.json").write_text('{"instances": ["text"]}')

    done = subprocess.run(
        [*TUNE, saved_models / "half_plus_two", "--p99", "1s", "--requests", tmp_path / "request.json"],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 2
    assert "Request 1 is refused with 400" in done.stderr
