"""`tfs-proxy conform` judges containers of others, by what is true of each: no must is broken, and no false alarm."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from support.judges import judge

CONTAINERS = Path(__file__).parent / "containers"
SECONDS = 200
ADVICE_TO_BOTH = {"ping/empty-body", "headers/custom-attributes-echoed", "metrics/answers"}


@pytest.mark.parametrize(
    ("name", "program", "words", "groups", "advice"),
    [
        (
            "fastapi",
            "uvicorn",
            "--host 127.0.0.1 --port {port} fastapi_app:app",
            "ping,invocations,headers,errors,streaming,batch,metrics",
            {*ADVICE_TO_BOTH, "ping/head"},
        ),
        (
            "flask",
            "gunicorn",
            "-k gthread --threads 4 -w 2 -b 127.0.0.1:{port} flask_app:app",
            "ping,headers,errors,metrics",  # large bodies of CSV are slow there
            {*ADVICE_TO_BOTH, "errors/json"},
        ),
    ],
)
def test_plain_container_breaks_no_rule(
    name: str, program: str, words: str, groups: str, advice: set[str], tmp_path: Path
) -> None:
    """As AWS's guide to own containers shapes them; what could be better is advice."""
    report = tmp_path / "report.json"
    argv = [sys.executable, "-m", "tfs_proxy.cli", "conform", "--json", str(report)]
    command = f"{judge('hosting').program(program)} {words}"
    requests = ["--requests", str(CONTAINERS / f"{name}.json")]

    done = subprocess.run(
        [*argv, "--command", command, "--only", groups, *requests],
        cwd=CONTAINERS,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )

    assert done.returncode == 0, done.stdout
    checks = json.loads(report.read_text())["checks"]
    failed = {(check["level"], check["name"]) for check in checks if check["outcome"] == "failed"}
    assert failed == {("should", found) for found in advice}
    assert sum(check["outcome"] == "passed" for check in checks) >= 25
