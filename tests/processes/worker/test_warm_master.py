"""Workers of one model whose modules gunicorn's master has imported, unless the model brings its own."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from support.archives import pack
from support.gunicorn_report import OURS
from support.gunicorn_report import TELLS as TELLS_OF_PROCESS
from support.stack import Stack, ended, serving
from support.waiting import wait_until
from support.wheels import write_wheel

TELLS = f"""
import json
import os
import sys

import {OURS}
import requests


def model_fn(model_dir):
    return None


def transform_fn(model, data, content_type, accept):
    import numpy

    parent = open(f"/proc/{{os.getppid()}}/maps").read()
    return json.dumps({{
        "version": getattr({OURS}, "VERSION", None),
        "random": int(numpy.random.randint(1 << 30)),
        "imports in the master": "simdjson" in parent,
    }}), "application/json"
"""
LOOKS = """
import json, os, sys
from tfs_proxy.worker.gunicorn_workers.preload import SCRIPT, WORKER, preload
preload([*WORKER, *SCRIPT])
before = set(sys.modules)
try:
    import tfs_proxy.worker.wsgi
except Exception as error:
    assert "TFS_PROXY_WORKSPACE is not set" in str(error), error
else:
    raise AssertionError("there is an application without a run")
print(json.dumps({
    "threads": len(os.listdir("/proc/self/task")),
    "descriptors": len(os.listdir("/proc/self/fd")) - 1,
    "only by a worker": sorted(set(sys.modules) - before),
    "unwanted": sorted(set(sys.modules).intersection(sys.argv[1:])),
}))
"""
UNWANTED = (
    "boto3 google.protobuf h11 ml_dtypes multiprocessing numpy.random opentelemetry requests urllib3".split()
)
"""Modules that each cost every worker memory and time, or must not be seeded before a fork."""


def told(stack: Stack) -> Any:
    answer = stack.invoke("x", "text/plain")
    assert answer.status == 200, stack.log
    return answer.json


def archive(folder: Path, **more: str | bytes) -> str:
    """A script model that tells which modules it sees."""
    return str(pack(folder / "model.tar.gz", {"code/inference.py": TELLS, **more}))


def test_imports_start_nothing_and_leave_nothing_to_workers() -> None:
    """No thread, file or connection is there to be forked, `worker.wsgi` finds all that it imports, and no more."""
    environ, command = {"OMP_NUM_THREADS": "1"}, [sys.executable, "-c", LOOKS, *UNWANTED]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    seen = {"threads": 1, "descriptors": 3, "only by a worker": [], "unwanted": []}
    assert json.loads(done.stdout) == seen


def test_a_model_without_packages_of_its_own_is_served_by_forked_imports(tmp_path: Path) -> None:
    """The master has what workers need, and each worker has random numbers of its own."""
    with serving(archive(tmp_path), env={"SAGEMAKER_GUNICORN_WORKERS": "2"}) as stack:
        answers = [told(stack) for _ in range(8)]

    assert {answer["version"] for answer in answers} == {None}
    assert {answer["imports in the master"] for answer in answers} == {True}
    assert len({answer["random"] for answer in answers}) == len(answers)


@pytest.mark.parametrize("is_vendored", [True, False])
def test_a_package_that_ours_import_leaves_imports_to_workers(tmp_path: Path, *, is_vendored: bool) -> None:
    """Of code/lib, whichever wins in a worker; of requirements another version wins over ours."""
    wheel = write_wheel(tmp_path, OURS, "99.0")
    required = {"code/requirements.txt": f"{OURS}==99.0\n", f"code/wheels/{wheel.name}": wheel.read_bytes()}
    vendored = {f"code/lib/{OURS}.py": "VERSION = 'vendored'\n"}
    with serving(archive(tmp_path, **(vendored if is_vendored else required))) as stack:
        answer = told(stack)

    assert is_vendored or answer["version"] == "99.0"
    assert not answer["imports in the master"]


def test_an_import_that_fails_is_told_by_a_worker(tmp_path: Path) -> None:
    """As if the master had not tried: the run ends with the reason that a worker has found."""
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "falcon.py").write_text("raise RuntimeError('broken for this test')\n")
    status, log = ended(archive(tmp_path), env={"PYTHONPATH": str(tmp_path / "broken")})
    assert status != 0
    assert "broken for this test" in log
    assert "gunicorn ended" not in log


def test_a_thread_that_imports_at_the_start_does_not_keep_the_run_from_it(tmp_path: Path) -> None:
    """Agents start such threads in ``sitecustomize``; their locks would stay held in a forked process."""
    (tmp_path / "agent").mkdir()
    (tmp_path / "agent" / "slow_agent.py").write_text("import time, numpy\ntime.sleep(2)\n")
    (tmp_path / "agent" / "sitecustomize.py").write_text(
        "import threading\nthreading.Thread(target=lambda: __import__('slow_agent'), daemon=True).start()\n"
    )
    model = str(pack(tmp_path / "model.tar.gz", {"code/inference.py": TELLS_OF_PROCESS}))
    with serving(model, env={"PYTHONPATH": str(tmp_path / "agent")}) as stack:
        assert not told(stack)["own"]["forked"]


PRELOADS = """
import json, os, random, socket, asyncio, threading
import numpy, prometheus_client
preload = True
VERSION = 1
CALLS = prometheus_client.Counter("own_calls", "Requests.")

def model_fn(model_dir):
    LEAVES
    return os.getpid(), numpy.ones(100_000_000 // 8)

def transform_fn(model, data, content_type, accept):
    CALLS.inc()
    return json.dumps({
        "pid": os.getpid(), "loader": model[0], "sum": model[1][:10].sum(), "version": VERSION,
        "drawn": [int(numpy.random.randint(1 << 30)), random.getrandbits(30)]}), "application/json"
"""


def private_mb(stack: Stack) -> int:
    """Memory of gunicorn's processes that no other process shares."""
    rollups = [Path(f"/proc/{pid}/smaps_rollup").read_text() for pid in stack.children()["gunicorn"]]
    return sum(int(kb) for text in rollups for kb in re.findall(r"Private_\w+: *(\d+)", text)) // 1024


def answers_of_both(stack: Stack, version: int = 1) -> dict[int, Any]:
    """One answer of each of two workers with this version of the code, by its process id."""
    answers: dict[int, Any] = {}
    # nginx keeps its connections, all of which one worker may have if the other came later: more need new ones.
    at_once = count(4, 4)

    def both() -> bool:
        told_now = list(threads.map(told, [stack] * next(at_once)))
        answers.update((answer["pid"], answer) for answer in told_now if answer["version"] == version)
        return len(answers) == 2

    with ThreadPoolExecutor(64) as threads:
        wait_until(both, 20, "both workers answer")
    return answers


def test_workers_share_the_model_of_a_script_that_asks_for_it(tmp_path: Path) -> None:
    """Loaded by the master alone, for a worker in place of a dead one and for new code, too."""
    (script := tmp_path / "code" / "inference.py").parent.mkdir()
    script.write_text(PRELOADS.replace("LEAVES", "pass"))
    with serving(str(tmp_path), "--reload", workers=2) as stack:
        before = answers_of_both(stack)
        assert private_mb(stack) < 100
        calls = stack.ask("GET", "/metrics").body.decode()
        os.kill(next(iter(before)), signal.SIGKILL)
        wait_until(lambda: len(set(stack.workers()) - before.keys()) == 1, 20, "another takes its place")
        after = answers_of_both(stack)
        script.write_text(script.read_text().replace("VERSION = 1", "VERSION = 2"))
        changed = answers_of_both(stack, version=2)

    (loader,) = {answer["loader"] for answer in (*before.values(), *after.values())}
    (other,) = {answer["loader"] for answer in changed.values()}
    assert re.search(r"^own_calls_total.* ([2-9]|\d\d+)\.0$", calls, re.MULTILINE), calls
    assert loader not in (before.keys() | after.keys())
    assert other not in (changed.keys() | {loader})
    drawn = [tuple(answer["drawn"]) for answer in {**before, **after}.values()]
    assert len(set(drawn)) == len({numpy for numpy, _ in drawn}) == 3
    assert "preload" not in stack.log


LEAVES = """
    global held
    held = [threading.Thread(target=threading.Event().wait, name="poller", daemon=True), socket.socketpair(),
            asyncio.new_event_loop(), open(__file__)]
    held[0].start()
"""


def test_a_model_that_a_fork_would_break_is_loaded_by_each_worker(tmp_path: Path) -> None:
    """The log names its threads, sockets, event loops and files; nothing of the master's is left."""
    script = PRELOADS.replace("    LEAVES\n", LEAVES)
    with serving(archive(tmp_path, **{"code/inference.py": script}), workers=2) as stack:
        answers = answers_of_both(stack)
        (line,) = [line for line in stack.messages if "preload = True" in line]

    assert all(answer["loader"] == pid for pid, answer in answers.items())
    for name in ("thread poller", "socket:[", "anon_inode:[eventpoll]", "code/inference.py"):
        assert name in line


def test_a_model_that_fails_before_the_fork_ends_the_start_as_in_a_worker(tmp_path: Path) -> None:
    """With the same words and the same status."""
    script = PRELOADS.replace("LEAVES", "raise KeyError('weights')")
    asked, unasked = (
        ended(archive(tmp_path, **{"code/inference.py": text}))
        for text in (script, script.replace("preload = True", ""))
    )

    assert asked[0] == unasked[0] == 3
    last = [log.splitlines()[-1].partition(" ")[2] for _, log in (asked, unasked)]
    assert last[0] == last[1]
    assert "KeyError: 'weights'" in last[0]


def test_a_run_that_can_not_begin_leaves_no_process_and_no_port(tmp_path: Path) -> None:
    """The process that waited to become gunicorn is gone before the run's exit status is there."""
    with closing(Stack(str(tmp_path / "missing.tar.gz"))) as stack:
        assert stack.wait() != 0
        with socket.socket() as port:
            port.bind((stack.host, stack.port))
