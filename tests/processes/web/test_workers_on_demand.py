"""The first request that needs a worker starts one, and more start once requests come at once."""

import http.client
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from support.archives import has_nginx, pack, stand_in_archive, stand_in_program
from support.gates import gate
from support.scraping import scrape
from support.stack import Stack
from tfs_proxy.settings import Settings
from tfs_proxy.web.workers.gunicorn_master import SLOW_LOAD_SECONDS

ALL_WORKERS = Settings.from_env({}).gunicorn_workers

pytestmark = [
    pytest.mark.tensorflow,
    pytest.mark.skipif(not has_nginx(), reason="nginx is not installed"),
    pytest.mark.skipif(ALL_WORKERS < 2, reason="one core has one worker"),
]

ATTRIBUTES = "X-Amzn-SageMaker-Custom-Attributes"
CLIENTS = 8
SHARE_SECONDS = 0.1
LONGEST_END_SECONDS = 4.0
SCRIPT = "def handler(data, context):\n    return 'x', 'text/plain'\n"


@contextmanager
def running(model: Path, env: Mapping[str, str]) -> Iterator[Stack]:
    """A stack that is ready, with as many workers as it decides itself."""
    stack = Stack(str(model), "--model-server", "embedded", env=env, workers=None)
    try:
        stack.wait_ready()
        yield stack
    finally:
        stack.close()


@pytest.fixture
def stack(saved_models: Path) -> Iterator[Stack]:
    """A model without a script."""
    with running(saved_models / "half_plus_two", {}) as started:
        yield started


def convert(connection: http.client.HTTPConnection) -> tuple[int, bytes]:
    """One request that a worker has to convert."""
    connection.request("POST", "/invocations", b"1.0\n2.0\n", {"Content-Type": "text/csv"})
    answer = connection.getresponse()
    return answer.status, answer.read()


def grow(stack: Stack) -> None:
    """Have clients ask until there is another worker."""
    ask_until(stack, lambda: len(stack.workers()) >= 2, "there is another worker")


def ask_until(stack: Stack, condition: Callable[[], bool], what: str) -> None:
    """Send requests from several clients until ``condition`` holds; each gets its answer."""
    enough = threading.Event()

    def keep_asking() -> set[int]:
        statuses = set()
        with closing(http.client.HTTPConnection(stack.host, stack.port, timeout=60)) as connection:
            while not enough.is_set():
                statuses.add(convert(connection)[0])
        return statuses

    with ThreadPoolExecutor(CLIENTS) as pool:
        asking = [pool.submit(keep_asking) for _ in range(CLIENTS)]
        try:
            stack.wait_until(condition, what)
        finally:
            enough.set()
        assert set[int]().union(*(each.result() for each in asking)) == {200}


def cpu_seconds(pid: int) -> float:
    """What a process has computed so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def wait_for_all(stack: Stack) -> None:
    """Wait until as many workers beat as there should be, and as there are."""

    def agree() -> bool:
        seen = scrape(stack)
        counts = {seen.total("tfs_proxy_workers"), seen.total("tfs_proxy_workers_configured")}
        return counts == {len(stack.workers())}

    stack.wait_until(agree, "all workers are counted, and none is missing")


def test_json_needs_no_worker(stack: Stack) -> None:
    """nginx sends it to the model server, and the run is as healthy without a worker."""
    answer = stack.ask("POST", "/invocations", '{"instances": [1.0]}', {"Content-Type": "application/json"})
    assert (answer.status, answer.json) == (200, {"predictions": [2.5]})

    assert stack.workers() == []
    assert scrape(stack).total("tfs_proxy_workers_configured") == 0
    assert stack.ask("GET", "/ping").status == 200


def test_the_run_is_healthy_while_the_first_worker_starts(stack: Stack) -> None:
    """Nobody takes an instance away whose first CSV has come."""
    statuses = []
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(stack.ask, "POST", "/invocations", "1.0", {"Content-Type": "text/csv"})
        while not first.done():
            statuses.append(stack.ask("GET", "/ping").status)
    assert first.result().status == 200
    wait_for_all(stack)
    statuses.append(stack.ask("GET", "/ping").status)
    assert set(statuses) == {200}


def test_requests_before_the_run_is_ready_start_no_worker(tmp_path: Path) -> None:
    """They are refused while the model loads."""
    archive, program = stand_in_archive(tmp_path / "model.tar.gz"), stand_in_program(tmp_path)
    with gate(tmp_path / "gate") as held:
        env = {"STAND_IN_GATE": held.mark()}
        with closing(Stack(str(archive), "--model-server", program, env=env, workers=None)) as stack:
            stack.wait_until(lambda: "gunicorn" in stack.children(), "gunicorn runs")
            refused = {convert_at(stack, "1.0", "m") for _ in range(20)}
            held.open()
            stack.wait_ready()
            assert refused == {503}
            assert stack.workers() == []


def test_a_stack_without_workers_ends_at_once(stack: Stack) -> None:
    """A signal ends the master's wait for the first request."""
    began = time.monotonic()
    stack.close()
    assert time.monotonic() - began < LONGEST_END_SECONDS


def test_recorded_requests_warm_a_worker_up(saved_models: Path, tmp_path: Path) -> None:
    """Whoever records requests wants the first one to be quick."""
    model = shutil.copytree(saved_models / "half_plus_two", tmp_path / "half_plus_two")
    record = [sys.executable, "-m", "tfs_proxy.cli", "warmup", str(model)]
    assert subprocess.run(record, capture_output=True, check=False).returncode == 0
    with running(model, {}) as stack:
        assert len(stack.workers()) == 1
        wait_for_all(stack)


def test_one_worker_converts_for_one_client(stack: Stack) -> None:
    """It also accepts where the others would, so that no request waits for them, and none is missed."""
    with closing(http.client.HTTPConnection(stack.host, stack.port, timeout=60)) as connection:
        answers = [convert(connection) for _ in range(50)]
    assert {status for status, _ in answers} == {200}

    wait_for_all(stack)
    assert len(stack.workers()) == 1


def test_clients_at_once_get_more_workers(stack: Stack) -> None:
    """The new one gets its share of the requests, and there are never more than are configured."""
    assert stack.ask("POST", "/invocations", "1.0", {"Content-Type": "text/csv"}).status == 200
    (first,) = stack.workers()
    grow(stack)
    wait_for_all(stack)
    assert 2 <= len(stack.workers()) <= ALL_WORKERS

    (new, *_) = set(stack.workers()) - {first}
    began = cpu_seconds(new)
    ask_until(stack, lambda: cpu_seconds(new) - began > SHARE_SECONDS, "the new one works, too")


def test_a_full_worker_leaves_requests_to_new_ones(saved_models: Path, tmp_path: Path) -> None:
    """It has no thread for them, and accepts none that would wait there."""
    models = tmp_path / "models"
    for name in ("gate", "half_plus_two"):
        shutil.copytree(saved_models / name, models / name)
    env = {"SAGEMAKER_GUNICORN_THREADS": "2", "SAGEMAKER_TFS_DEFAULT_MODEL_NAME": "half_plus_two"}
    with running(models, env) as stack, ThreadPoolExecutor(2) as pool, gate(tmp_path / "gate") as held:
        calls = [pool.submit(convert_at, stack, held.mark(name), "gate") for name in ("one", "two")]
        held.wait_for(2)
        assert {convert_at(stack, "1.0", "half_plus_two") for _ in range(10)} == {200}
        held.open()
        assert [call.result() for call in calls] == [200, 200]


def convert_at(stack: Stack, body: str, model: str) -> int:
    """The status of one request to a model."""
    headers = {"Content-Type": "text/csv", ATTRIBUTES: f"tfs-model-name={model}"}
    return stack.ask("POST", "/invocations", body, headers).status


def test_workers_that_die_come_back(stack: Stack) -> None:
    """What is left takes the requests meanwhile."""
    grow(stack)
    wait_for_all(stack)
    count, dead = len(stack.workers()), stack.workers()[0]
    os.kill(dead, signal.SIGKILL)
    with closing(http.client.HTTPConnection(stack.host, stack.port, timeout=60)) as connection:
        assert {convert(connection)[0] for _ in range(50)} == {200}
    stack.wait_until(lambda: dead not in stack.workers() and len(stack.workers()) >= count, "it is replaced")
    wait_for_all(stack)


def test_a_new_master_begins_without_workers(stack: Stack) -> None:
    """It knows nothing of earlier requests, and the supervisor expects no more."""
    grow(stack)
    wait_for_all(stack)
    master = stack.children()["gunicorn"][0]
    os.kill(master, signal.SIGKILL)
    stack.wait_until(lambda: stack.children().get("gunicorn", [master])[0] != master, "there is a new master")
    stack.wait_ready()
    wait_for_all(stack)
    assert stack.workers() == []
    grow(stack)


@pytest.mark.parametrize(
    ("env", "count"),
    [
        pytest.param({"SAGEMAKER_DEFAULT_INVOCATIONS_ACCEPT": "text/csv"}, 1, id="no JSON is asked for"),
        pytest.param({"SAGEMAKER_GUNICORN_WORKERS": "3"}, 3, id="set by the user"),
    ],
)
def test_workers_that_every_run_needs_start_at_once(
    saved_models: Path, env: dict[str, str], count: int
) -> None:
    """Nobody waits for the first one then, and whoever names a number gets it."""
    with running(saved_models / "half_plus_two", env) as stack:
        stack.wait_until(lambda: len(stack.workers()) == count, f"{count} workers run")
        wait_for_all(stack)


@pytest.mark.parametrize("brought", [{}, {"code/lib/numpy_is_ours.py": ""}, {"code/lib/hpack.py": "x = 1"}])
def test_a_script_that_loads_soon_has_one_worker_at_first(
    saved_models: Path, tmp_path: Path, brought: dict[str, str]
) -> None:
    """Whether the master can import for it or not; more workers start once requests come at once."""
    folders = {"half_plus_two": saved_models / "half_plus_two"}
    archive = pack(tmp_path / "model.tar.gz", {"code/inference.py": SCRIPT, **brought}, folders)
    with running(archive, {}) as stack:
        wait_for_all(stack)
        assert len(stack.workers()) == 1
        grow(stack)
        wait_for_all(stack)


def test_a_script_that_loads_for_long_has_all_workers_from_the_start(
    saved_models: Path, tmp_path: Path
) -> None:
    """Requests that come at once would wait as long for another one."""
    folders = {"half_plus_two": saved_models / "half_plus_two"}
    script = f"import time\ntime.sleep({SLOW_LOAD_SECONDS + 3})\n{SCRIPT}"
    archive = pack(tmp_path / "model.tar.gz", {"code/inference.py": script}, folders)
    with running(archive, {}) as stack:
        stack.wait_until(lambda: len(stack.workers()) == ALL_WORKERS, "all workers run")
        wait_for_all(stack)
