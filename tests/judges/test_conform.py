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


JUDGED = {
    "FastAPI": (
        "hosting",
        "fastapi",
        f"uvicorn {UVICORN} fastapi_app:app",
        ALL_GROUPS,
        {*ADVICE_TO_ALL, "ping/empty-body", "ping/head"},
    ),
    "Flask on threads": (
        "hosting",
        "flask",
        f"gunicorn -k gthread --threads 4 {FLASK}",
        SMALL_GROUPS,
        TO_FLASK,
    ),
    "Flask on processes": ("hosting", "flask", f"gunicorn -k sync {FLASK}", SMALL_GROUPS, TO_FLASK),
    "model-hosting-container-standards": (
        "standards",
        "standards",
        f"uvicorn {UVICORN} standards_app:app",
        ALL_GROUPS,
        {*ADVICE_TO_ALL, "ping/head"},
    ),
    "sagemaker-inference on multi-model-server": (
        "mms",
        "mms",
        "python mms_container.py {port} {folder}",
        f"{SMALL_GROUPS},invocations",
        TO_MULTI_MODEL_SERVER,
    ),
}
SHORT = ("FastAPI", "Flask on threads")


@pytest.mark.parametrize(
    ("installed", "name", "command", "groups", "advice"),
    [
        pytest.param(*judged, id=which, marks=() if which in SHORT else pytest.mark.long)
        for which, judged in JUDGED.items()
    ],
)
def test_a_container_of_others_breaks_no_rule(
    installed: str, name: str, command: str, groups: str, advice: set[str], tmp_path: Path
) -> None:
    """As AWS's guide to own containers shapes them, or its packages; what could be better is advice."""
    if name == "mms" and not shutil.which("java"):
        pytest.skip("multi-model-server needs java")
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
