"""What workers import before a request: libraries that only scripts need are left to workers with a script."""

import json
import subprocess
import sys

import pytest

FOR_SCRIPTS = ("requests", "urllib3", "grpc")
NEVER = ("grpc", "boto3", "opentelemetry", "h11", "multiprocessing")


@pytest.mark.parametrize(
    ("modules", "unwanted"), [("WORKER", {*FOR_SCRIPTS, *NEVER}), ("[*WORKER, *SCRIPT]", set(NEVER))]
)
def test_a_worker_imports_no_library_that_it_may_not_need(modules: str, unwanted: set[str]) -> None:
    """Each would cost every worker memory, and its start time."""
    code = (
        "import json, sys\n"
        "from tfs_proxy.web.workers.warm.preload import SCRIPT, WORKER, preload\n"
        f"preload({modules})\n"
        "print(json.dumps(list(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert unwanted & set(json.loads(done.stdout)) == set()
