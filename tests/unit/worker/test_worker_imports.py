"""Imports of workers before a request: rarely used libraries are imported later."""

import json
import subprocess
import sys

import pytest

UNWANTED = {
    "boto3",
    "google.protobuf",
    "grpc",
    "h11",
    "ml_dtypes",
    "multiprocessing",
    "opentelemetry",
    "requests",
    "urllib3",
}


@pytest.mark.parametrize("modules", ["WORKER", "[*WORKER, *SCRIPT]"])
def test_a_worker_imports_no_library_that_it_may_not_need(modules: str) -> None:
    """Each would cost every worker memory, and its start time."""
    code = (
        "import json, sys\n"
        "from tfs_proxy.worker.gunicorn_workers.preload import SCRIPT, WORKER, preload\n"
        f"preload({modules})\n"
        "print(json.dumps(list(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert UNWANTED & set(json.loads(done.stdout)) == set()
