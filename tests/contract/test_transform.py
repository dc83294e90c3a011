"""A batch transform job with a join, and one whose records are partly refused."""

import json
import subprocess
from pathlib import Path

import pytest

from contract.doors import COMMAND, SECONDS, environment
from contract.stacks import EMBEDDED

pytestmark = pytest.mark.tensorflow

SETTINGS = {"SAGEMAKER_GUNICORN_WORKERS": "1"}


def transform(folder: Path, *words: str) -> tuple[int, dict[str, object]]:
    """Run a job to its end; exit status and summary."""
    summary = folder / "summary.json"
    command = [COMMAND, "transform", *words, "--summary", str(summary)]
    done = subprocess.run(
        command, check=False, env=environment(SETTINGS), capture_output=True, timeout=2 * SECONDS
    )
    return done.returncode, json.loads(summary.read_text()) if summary.exists() else {"log": done.stderr}


def test_a_join(saved_models: Path, tmp_path: Path) -> None:
    """Each record stands beside its prediction, in order, bad ones named; the same command then has nothing to do."""
    (tmp_path / "in" / "sub").mkdir(parents=True)
    (tmp_path / "in" / "a.csv").write_text("".join(f"{number}\n" for number in range(300)))
    (tmp_path / "in" / "sub" / "b.csv").write_text("1\noops\n3\n")
    model = ("--model", str(saved_models / "half_plus_two"), *EMBEDDED)
    types = (
        "--content-type",
        "text/csv",
        "--accept",
        "text/csv",
        "--split-type",
        "Line",
        "--assemble-with",
        "Line",
    )
    job = (
        *model,
        "--input",
        str(tmp_path / "in"),
        "--output",
        str(tmp_path / "out"),
        *types,
        "--join",
        "Input",
    )

    status, summary = transform(tmp_path, *job, "--on-error", "placeholder", "--max-concurrent", "4")

    assert (status, summary["objects"]) == (0, {"all": 2, "done": 2, "already_done": 0, "failed": 0}), summary
    wanted = "".join(f"{number},{number / 2 + 2}\n" for number in range(300))
    assert (tmp_path / "out" / "a.csv.out").read_text() == wanted
    assert (tmp_path / "out" / "sub" / "b.csv.out").read_text() == "1,2.5\noops,ERROR\n3,3.5\n"
    assert "oops" in (tmp_path / "out" / "sub" / "b.csv.err").read_text()
    status, summary = transform(tmp_path, *job, "--on-error", "placeholder", "--max-concurrent", "4")
    assert (status, summary["objects"]) == (0, {"all": 2, "done": 0, "already_done": 2, "failed": 0})
