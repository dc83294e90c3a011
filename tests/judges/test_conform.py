"""`tfs-proxy conform` judges containers of others, by what is true of each: no must is broken, and no false alarm."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from support.judges import judge

CONTAINERS = Path(__file__).parent / "containers"
SECONDS = 200
ALL_GROUPS = "ping,invocations,headers,errors,streaming,batch,metrics"
SMALL_GROUPS = "ping,headers,errors,metrics"
"""Where large bodies are slow."""

ADVICE_TO_ALL = {"headers/custom-attributes-echoed", "metrics/answers"}
TO_FLASK = {*ADVICE_TO_ALL, "ping/empty-body", "errors/json"}
TO_MULTI_MODEL_SERVER = {
    *ADVICE_TO_ALL,
    "ping/empty-body",
    "invocations/unknown-accept",
    "headers/new-session",
    "headers/any-case",
    "headers/no-content-type",
    *(f"errors/{name}" for name in ("bad-request-4xx", "json", "short", "no-traceback")),
    *(f"errors/{name}" for name in ("empty-body", "unknown-content-type", "get-invocations")),
}
FLASK = "-w 2 -b 127.0.0.1:{port} flask_app:app"
UVICORN = "--host 127.0.0.1 --port {port}"


@pytest.mark.parametrize(
    ("installed", "name", "command", "groups", "advice"),
    [
        pytest.param(
            "hosting",
            "fastapi",
            f"uvicorn {UVICORN} fastapi_app:app",
            ALL_GROUPS,
            {*ADVICE_TO_ALL, "ping/empty-body", "ping/head"},
            id="FastAPI",
        ),
        pytest.param(
            "hosting",
            "flask",
            f"gunicorn -k gthread --threads 4 {FLASK}",
            SMALL_GROUPS,
            TO_FLASK,
            id="Flask on threads",
        ),
        pytest.param(
            "hosting",
            "flask",
            f"gunicorn -k sync {FLASK}",
            SMALL_GROUPS,
            TO_FLASK,
            id="Flask on processes",
            marks=pytest.mark.long,
        ),
        pytest.param(
            "standards",
            "standards",
            f"uvicorn {UVICORN} standards_app:app",
            ALL_GROUPS,
            {*ADVICE_TO_ALL, "ping/head"},
            id="model-hosting-container-standards",
            marks=pytest.mark.long,
        ),
        pytest.param(
            "mms",
            "mms",
            "python mms_container.py {port} {folder}",
            f"{SMALL_GROUPS},invocations",
            TO_MULTI_MODEL_SERVER,
            id="sagemaker-inference on multi-model-server",
            marks=[
                pytest.mark.long,
                pytest.mark.skipif(not shutil.which("java"), reason="multi-model-server needs java"),
            ],
        ),
    ],
)
def test_a_container_of_others_breaks_no_rule(
    installed: str, name: str, command: str, groups: str, advice: set[str], tmp_path: Path
) -> None:
    """As AWS's guide to own containers shapes them, or its packages; what could be better is advice."""
    report = tmp_path / "report.json"
    argv = [sys.executable, "-m", "tfs_proxy.cli", "conform", "--json", str(report)]
    filled = f"{judge(installed).folder}/bin/{command}".replace("{folder}", str(tmp_path))
    requests = ["--requests", str(CONTAINERS / f"{name}.json")]

    done = subprocess.run(
        [*argv, "--command", filled, "--only", groups, *requests],
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
