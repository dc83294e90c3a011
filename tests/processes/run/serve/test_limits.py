"""`tfs-proxy serve` in real control groups: workers and threads follow limits of CPU and memory."""

import contextlib
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from support.archives import SAVED_MODEL, pack, stand_in_archive, stand_in_program, without_nginx
from support.control_groups import limited
from support.stack import Stack, serving

MEGABYTE = 1024 * 1024


@pytest.fixture(autouse=True)
def _two_cores() -> None:
    """With one core there is one worker, whatever the limits."""
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("limits below the machine's own take two cores")


@pytest.fixture
def program(tmp_path: Path) -> str:
    """The stand-in model server."""
    return stand_in_program(tmp_path)


@pytest.fixture
def large(tmp_path: Path) -> Path:
    """A folder with a model of 500 MB, almost all of it a hole in a file."""
    version = tmp_path / "large" / "m" / "1"
    (version / "variables").mkdir(parents=True)
    (version / "saved_model.pb").write_bytes(SAVED_MODEL)
    with (version / "variables" / "variables.data-00000-of-00001").open("wb") as file:
        file.truncate(500 * MEGABYTE)
    return tmp_path / "large"


def started(
    model: Path, program: str, launcher: list[str], **env: str
) -> contextlib.AbstractContextManager[Stack]:
    """A ready stack in a group, stopped at the end."""
    return serving(str(model), "--model-server", program, env=env, launcher=launcher, workers=None)


def words_of(stack: Stack) -> list[str]:
    """The command line of its model server."""
    (pid,) = stack.children()["model_server"]
    return Path(f"/proc/{pid}/cmdline").read_text().split("\0")


def test_a_cpu_limit_decides_workers_and_threads(tmp_path: Path, program: str) -> None:
    """A limit of one core on a machine of more is one worker, one intra-op thread, and said."""
    archive = stand_in_archive(tmp_path / "model.tar.gz")
    with limited(cpus=1) as launcher, started(archive, program, launcher) as stack:
        assert len(stack.workers()) == 1
        assert "1 worker (gthread) of 256 threads, limited by the CPU limit of 1; " in stack.log
        assert "--tensorflow_intra_op_parallelism=1" in words_of(stack)
        assert stack.ask("GET", "/execution-parameters").json["MaxConcurrentTransforms"] == 2


@pytest.mark.parametrize("env", [{}, without_nginx()], ids=["nginx", "gunicorn"])
def test_the_size_of_the_models_leaves_memory_for_fewer_workers(
    large: Path, program: str, env: dict[str, str]
) -> None:
    """1200 MB hold one worker beside a model of 500 MB; every request reaches that one."""
    with limited(memory_bytes=1200 * MEGABYTE) as launcher, started(large, program, launcher, **env) as stack:
        assert len(stack.workers()) == 1
        assert "limited by 1200 MB of memory (the models count as 2 x 501 MB" in stack.log
        answers = [stack.invoke('{"instances": [1.0]}').status for _ in range(20)]
        assert answers == [200] * 20


def test_a_number_that_is_set_is_not_limited(large: Path, program: str) -> None:
    """Whoever sets it knows better, and the report names the variable."""
    with (
        limited(memory_bytes=1200 * MEGABYTE) as launcher,
        started(large, program, launcher, SAGEMAKER_GUNICORN_WORKERS="2") as stack,
    ):
        stack.wait_until(lambda: len(stack.workers()) == 2, "there are two workers")
        assert "2 workers (gthread) of 256 threads, set by SAGEMAKER_GUNICORN_WORKERS; " in stack.log


def test_memory_that_is_left_is_that_of_the_group() -> None:
    """What a process takes is gone for it and those beside it; files that it has only read are not."""
    program = f"""
import sys, tempfile
from tfs_proxy.values.resources import memory_left
before = memory_left()
with tempfile.TemporaryFile(dir=sys.argv[1]) as file:
    file.write(bytes({50 * MEGABYTE}))
    file.flush()
    written = memory_left()
    taken = bytearray(b"1") * {100 * MEGABYTE}
    after = memory_left()
print(before.limit_bytes, before.free_bytes, written.free_bytes, after.free_bytes)
"""
    # The folder for temporary files may be memory itself, which counts.
    disk = Path(__file__).parent
    with limited(memory_bytes=400 * MEGABYTE) as launcher:
        command = [*launcher, sys.executable, "-c", program, str(disk)]
        answer = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    limit, before, written, after = (int(number) // MEGABYTE for number in answer.split())

    assert limit == 400
    assert 300 < before < 400
    assert before - written < 20
    assert 95 < written - after < 110


SLOW = """
import time


def input_handler(data, context):
    time.sleep(0.3)
    return data.read()


def output_handler(response, context):
    return response.content, "application/json"
"""
MANY = 100


@pytest.mark.slow
@pytest.mark.tensorflow
def test_few_tasks_mean_few_threads_and_no_request_is_lost(tmp_path: Path, saved_models: Path) -> None:
    """A hundred slow requests at once under pids.max of 64: workers that can't start a thread would die."""
    archive = pack(
        tmp_path / "model.tar.gz",
        {"code/inference.py": SLOW},
        {"half_plus_two": saved_models / "half_plus_two"},
    )
    env = {"TFS_PROXY_GRPC_PORT": "0"}
    with limited(tasks=64) as launcher, started(archive, "embedded", launcher, **env) as stack:
        with ThreadPoolExecutor(MANY) as pool:
            statuses = list(pool.map(lambda _: stack.invoke('{"instances": [1.0]}').status, range(MANY)))

        assert set(statuses) <= {200, 503}
        assert statuses.count(200) > MANY // 2
        assert "can't start new thread" not in stack.log
