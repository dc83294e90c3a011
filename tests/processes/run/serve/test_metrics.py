"""GET /metrics of the whole stack: whenever it is asked, and however busy the workers are."""

import os
import shutil
import signal
import statistics
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from support import gates
from support.archives import NEEDS_NGINX, stand_in_words
from support.scraping import scrape, scrape_open_metrics
from support.stack import Stack, serving

pytestmark = NEEDS_NGINX
SCRIPT = f"""{gates.SCRIPT}


def handler(data, context):
    hold(data.read().decode())
    return b"done", "text/plain"
"""


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """One worker with two threads, and a script whose calls are held; the last tests kill what comes back."""
    folder = tmp_path_factory.mktemp("stack")
    env = {"SAGEMAKER_GUNICORN_WORKERS": "1", "SAGEMAKER_GUNICORN_THREADS": "2"}
    with serving(*stand_in_words(folder, SCRIPT), env=env) as running:
        yield running


def in_flight(stack: Stack) -> float:
    """What a scrape says; without nginx a worker that has just been killed can't pass it on."""
    stack.wait_until(stack.is_ready, "a worker answers")
    return scrape(stack).total("tfs_proxy_requests_in_flight")


def test_the_run_shows_itself_in_both_formats(stack: Stack) -> None:
    """Versions, phase, processes, workers and models; HEAD has no body, and other methods are refused."""
    both = (scrape(stack), scrape_open_metrics(stack))
    assert len({metrics.total("tfs_proxy_startup_seconds") for metrics in both}) == 1, "the start has ended"
    for metrics in both:
        assert metrics.total("tfs_proxy_build_info") == 1
        assert metrics.total("tfs_proxy_ready") == 1
        assert metrics.total("tfs_proxy_phase", phase="serving") == 1
        assert metrics.total("tfs_proxy_startup_seconds", step="loading the models") > 0
        assert metrics.total("tfs_proxy_process_up", process="gunicorn") == 1
        assert metrics.total("tfs_proxy_process_resident_memory_bytes", process="gunicorn") > 1e6
        assert metrics.total("tfs_proxy_process_open_files", process="supervisor") > 3
        assert metrics.total("tfs_proxy_memory_limit_bytes") > 1e8
        assert metrics.total("tfs_proxy_process_cpu_seconds_total", process="supervisor") > 0
        assert metrics.total("tfs_proxy_workers") == metrics.total("tfs_proxy_workers_configured") == 1
        assert metrics.total("tfs_proxy_model_state", model="m", version="1", state="AVAILABLE") == 1
        assert metrics.total("tfs_proxy_model_load_seconds", model="m") > 0

    assert stack.ask("HEAD", "/metrics").body == b""
    refused = stack.ask("POST", "/metrics", b"{}")
    assert (refused.status, "error" in refused.json) == (405, True)


@pytest.mark.slow
def test_promtool_finds_no_fault(stack: Stack) -> None:
    """Prometheus's own linter of names, units and help."""
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed")
    text = stack.ask("GET", "/metrics").body
    lint = subprocess.run([promtool, "check", "metrics"], input=text, capture_output=True, check=False)

    assert (lint.returncode, lint.stdout, lint.stderr) == (0, b"", b"")


def test_metrics_answer_while_every_thread_is_busy(stack: Stack, tmp_path: Path) -> None:
    """The supervisor answers, not the workers: within 10 ms, with a margin of 4, as the median of 20."""
    with gates.gate(tmp_path / "gate") as gate, ThreadPoolExecutor() as clients:
        calls = [clients.submit(stack.invoke, gate.mark(str(number))) for number in range(2)]
        gate.wait_for(2)
        waiting = [clients.submit(stack.invoke, gate.mark(str(number))) for number in range(2, 6)]

        metrics = scrape(stack)
        assert metrics.total("tfs_proxy_workers") == 1
        assert metrics.total("tfs_proxy_worker_threads") == 2
        assert metrics.total("tfs_proxy_worker_threads_busy") == 2
        assert metrics.total("tfs_proxy_worker_threads_stuck") == 0
        stack.wait_until(lambda: in_flight(stack) == 6, "those that wait are in flight, too")
        seconds = []
        for _ in range(20):
            began = time.monotonic()
            scrape(stack)
            seconds.append(time.monotonic() - began)
        assert statistics.median(seconds) < 0.01 * 4

        gate.open()
        assert [call.result().status for call in (*calls, *waiting)] == [200] * 6
    stack.wait_until(lambda: in_flight(stack) == 0, "none is in flight")


def test_requests_are_in_flight_from_their_begin_to_their_end(stack: Stack, tmp_path: Path) -> None:
    """The scrape itself is not counted, nor what a killed worker had begun."""
    stack.wait_until(lambda: in_flight(stack) == 0, "none is in flight")

    with gates.gate(tmp_path / "gate") as gate, ThreadPoolExecutor() as clients:
        call = clients.submit(stack.invoke, gate.mark())
        gate.wait_for(1)
        stack.wait_until(lambda: in_flight(stack) == 1, "the held one is in flight")
        os.kill(stack.workers()[-1], signal.SIGKILL)
        assert call.exception() is not None or call.result().status == 502
        stack.wait_until(lambda: in_flight(stack) == 0, "none is in flight")


def test_what_a_killed_nginx_worker_had_is_not_in_flight_for_good(stack: Stack, tmp_path: Path) -> None:
    with gates.gate(tmp_path / "gate") as gate, ThreadPoolExecutor() as clients:
        calls = [clients.submit(stack.invoke, gate.mark(str(number))) for number in range(2)]
        gate.wait_for(2)
        stack.wait_until(lambda: in_flight(stack) == 2, "the held ones are in flight")
        for pid in stack.children()["nginx"][1:]:
            os.kill(pid, signal.SIGKILL)
        assert all(call.exception() is not None for call in calls)
        gate.open()
    stack.wait_until(lambda: in_flight(stack) == 0, "none is in flight")


def test_a_killed_process_counts_as_restarted(stack: Stack) -> None:
    """By the signal that ended it; processor time goes on from what it was."""
    starts = scrape(stack).total("tfs_proxy_worker_starts_total")
    before = scrape(stack).total("tfs_proxy_process_cpu_seconds_total", process="gunicorn")
    os.kill(stack.children()["gunicorn"][0], signal.SIGKILL)
    stack.wait_until(
        lambda: (
            stack.is_ready()
            and scrape(stack).total("tfs_proxy_worker_starts_total") > starts
            and scrape(stack).total("tfs_proxy_process_restarts_total", process="gunicorn", reason="SIGKILL")
        ),
        "the restart is counted",
    )

    assert scrape(stack).total("tfs_proxy_process_cpu_seconds_total", process="gunicorn") >= before
