"""Without traces no process of a run has OpenTelemetry in it."""

import subprocess
import sys

MODULES = (
    "tfs_proxy.commands.serve",
    "tfs_proxy.run.run",
    "tfs_proxy.run.nginx.config",
    "tfs_proxy.run.pipeline.run",
    "tfs_proxy.worker.app",
    "tfs_proxy.worker.gunicorn_workers.thread_worker",
    "tfs_proxy.observe.tracing.choice",
    "tfs_proxy.observe.tracing.parents",
)


def test_no_process_imports_opentelemetry_by_itself() -> None:
    imports = "; ".join(f"import {module}" for module in MODULES)
    code = f"import sys; {imports}; print([name for name in sys.modules if 'opentelemetry' in name])"
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout

    assert output.strip() == "[]"
