"""Traces of a pipeline's front and of a worker: what OpenTelemetry refuses is no reason to end."""

import os
import subprocess
import sys

import pytest

PIPELINE = """
import os
from tfs_proxy.run.pipeline.traces import HandedOn, pipeline_traces

assert pipeline_traces(os.environ).begin is HandedOn
"""
WORKER = """
from types import SimpleNamespace
from tfs_proxy.values.deployment import TraceSampling
from tfs_proxy.worker.gunicorn_workers.request_observers import begin_traces

deployment = SimpleNamespace(traces=TraceSampling(1.0, "followed"))
assert begin_traces(deployment).observers == ()
"""


@pytest.mark.parametrize("program", [PIPELINE, WORKER], ids=["pipeline", "worker"])
def test_a_variable_that_opentelemetry_refuses_as_it_is_imported_ends_nothing(program: str) -> None:
    """The log says why there are no traces."""
    refused = {"OTEL_TRACES_EXPORTER": "console", "OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT": "many"}
    ended = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, **refused},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert ended.returncode == 0, ended.stderr
    assert "no traces are sent: OpenTelemetry can't be configured: OTEL_SPAN_ATTRIBUTE" in ended.stderr
