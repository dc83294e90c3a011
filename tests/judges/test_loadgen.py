"""MLCommons' load generator, unchanged, measures a stack with the settings that `tfs-proxy tune` has found."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from support.judges import Judge
from support.stack import Stack

pytestmark = [pytest.mark.tensorflow, pytest.mark.long]
BODY = '{"instances": [1.0, 2.0, 5.0]}'
SECONDS, LATENCY_MS = 3, 1000
MOST_RATE = 200
"""Of the Server scenario: the client's own threads answer for some hundreds of requests a second."""


@pytest.fixture(scope="module")
def found(saved_models: Path) -> dict[str, Any]:
    words = [str(saved_models / "half_plus_two"), "--p99", f"{LATENCY_MS}ms", "--budget", "30", "--json"]
    tuned = subprocess.run(
        [sys.executable, "-m", "tfs_proxy.cli", "tune", *words], capture_output=True, text=True, check=False
    )
    assert tuned.returncode == 0, tuned.stderr
    document: dict[str, Any] = json.loads(tuned.stdout)
    return document


@pytest.fixture(scope="module")
def stack(saved_models: Path, found: dict[str, Any]) -> Iterator[Stack]:
    running = Stack(str(saved_models / "half_plus_two"), env=found["environment"], workers=None)
    try:
        running.wait_ready()
        yield running
    finally:
        running.close()


@pytest.mark.parametrize("scenario", ["Server", "Offline"])
def test_a_scenario_is_valid(
    judges: Callable[[str], Judge], found: dict[str, Any], stack: Stack, tmp_path: Path, scenario: str
) -> None:
    """Requests that come by chance are answered in time, and a pile of them at some rate; none fails."""
    rate = found["requests_per_second"]
    # Offline expects a rate, from which it takes how many requests last for SECONDS.
    expected = 2 * rate if scenario == "Offline" else min(MOST_RATE, rate / 4)
    load = map(str, (stack.port, BODY, expected, SECONDS, LATENCY_MS, tmp_path))

    seen = judges("loadgen").saw("mlperf_scenarios", scenario, stack.host, *load)

    assert seen["failures"] == 0
    assert seen["Result is"] == "VALID", seen
