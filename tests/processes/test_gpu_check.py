"""The script that tries what reads a GPU, where there is none."""

import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "scripts" / "gpu_check.py"


def test_without_a_gpu_it_tries_the_rest_and_says_what_it_could_not() -> None:
    """All that needs none is as expected, a run with two model servers included."""
    done = subprocess.run([sys.executable, SCRIPT], capture_output=True, text=True, timeout=300, check=False)

    rows = [line.split(" | ") for line in done.stdout.splitlines()]
    found = {row[0]: row[-1] for row in rows if len(row) == 4}
    assert (done.returncode, "NOT AS EXPECTED" in done.stdout) == (0, False), done.stdout
    assert found["exit status of the run"] == found["with-cuda-compat"] == "ok"
    assert found["a model's answers, batches and rate"].startswith("could not try: ")
