"""`tfs-proxy transform --engine ray` on a Ray cluster of several nodes, each a process of this machine."""

import contextlib
import json
import os
import random
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from support.archives import stand_in_archive, stand_in_program
from support.running import LOOPBACK
from support.stack import Stack
from support.transform_command import Done, outputs, posts, stand_in, transform
from support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

STARTS = 4
PROGRAM = Path(__file__).parents[2] / "support" / "stand_ins" / "ray_cluster.py"
SCRIPT = """
import os
import time
from pathlib import Path

GATE = Path({gate!r})

def handler(data, context):
    body = data.read()
    while b"held" in body and not (GATE / "open").exists():
        (GATE / f"{{os.getppid()}}").touch()
        time.sleep(0.01)
    if b"BAD" in body:
        raise ValueError("this is bad")
    return body.upper(), "text/plain"
"""
FLAGS = "--split-type Line --strategy SingleRecord --assemble-with Line --max-concurrent 4".split()


def places(folder: Path, data: str = "in", out: str = "out") -> list[str]:
    return ["--input", str(folder / data), "--output", str(folder / out)]


class RayCluster:
    """A cluster in processes of its own; its ``address`` is empty if it could not be started."""

    def __init__(self, nodes: int) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(PROGRAM), str(nodes)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={
                **os.environ,
                "TFS_PROXY_NGINX": "false",
                "SAGEMAKER_GUNICORN_WORKERS": "1",
                # Else Ray ends workers where the machine's memory is nearly full, whoever uses it.
                "RAY_memory_monitor_refresh_ms": "0",
                "RAY_DASHBOARD_STARTUP_TIMEOUT_S": "300",
            },
        )
        self.address = self._line()

    def tell(self, words: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(words + "\n")
        self._process.stdin.flush()
        assert self._line() == "done"

    def close(self) -> None:
        self._process.communicate(timeout=60)

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayCluster]:
    cluster = RayCluster(2)
    for _ in range(STARTS - 1):
        if not cluster.address:  # Ray gives a node 30 seconds to start, however busy the machine is
            cluster.close()
            cluster = RayCluster(2)
    assert cluster.address
    yield cluster
    cluster.close()


def on_ray(cluster: RayCluster, *words: str) -> Done:
    return transform(*words, "--engine", "ray", env={"RAY_ADDRESS": cluster.address}, seconds=400)


def test_a_node_that_dies(tmp_path: Path, cluster: RayCluster) -> None:
    """Each node has a stack; what a lost one held is done elsewhere, and outputs are those of one machine."""
    gate = tmp_path / "gate"
    gate.mkdir()
    archive = stand_in_archive(tmp_path / "model.tar.gz", SCRIPT.format(gate=str(gate)))
    (tmp_path / "in" / "sub").mkdir(parents=True)
    chance = random.Random(6)
    for number in range(30):
        # Objects are done from the largest down: on each node some that are not held come first.
        word, least, most = ("file", 40, 60) if number < 20 else ("held", 9, 30)
        # The first lines of one that is held are answered: its output has begun.
        words = ["file"] * 4 + [word] * (chance.randint(least, most) - 4)
        lines = "".join(f"{word} {number}, line {line}\n" for line, word in enumerate(words))
        (tmp_path / "in" / "sub" / f"{number:02}").write_text(lines)
    (tmp_path / "in" / "bad").write_text("one\nBAD\n")
    words = ["--model", str(archive), "--model-server", stand_in_program(tmp_path), *FLAGS]
    words += ["--max-retries", "0", "--on-error", "placeholder"]
    out = tmp_path / "out"

    def kill() -> None:
        """End a node when both hold records and something is done: neither is done before the gate opens."""
        wait_until(
            lambda: outputs(out) and len(list(gate.iterdir())) >= 2,
            400,
            "both nodes hold records, and some are done",
        )
        cluster.tell("kill 0")
        (gate / "open").touch()

    killer = threading.Thread(target=kill, daemon=True)
    killer.start()
    done = on_ray(cluster, *words, *places(tmp_path))
    killer.join()
    assert done.status == 0, done.log
    alone = transform(*words, *places(tmp_path, out="alone"))
    assert outputs(out) == outputs(tmp_path / "alone")
    assert "no longer takes part" in done.log
    assert not list(out.rglob("growing-*/*"))
    for name in ("objects", "records", "bad_records", "bytes", "failures"):
        assert done.summary[name] == alone.summary[name]
    wait_until(lambda: not processes_of(archive), 60, "no stack outlives its node")


def processes_of(archive: Path) -> list[int]:
    """Processes that name ``archive`` on their command line."""
    pids = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if os.fsencode(archive) in path.read_bytes():
                pids.append(int(path.parent.name))
    return pids


def test_it_goes_on_where_one_machine_stopped(tmp_path: Path, cluster: RayCluster) -> None:
    """Nodes share an endpoint; finished objects are not sent again, and one that fails does not stop the rest."""
    (tmp_path / "in").mkdir()
    for name in "abc":
        (tmp_path / "in" / name).write_text(f"{name}\n")
    (tmp_path / "in" / "d").write_text("1\nBAD\n")
    with stand_in() as echo:
        words = ["--endpoint", echo, *places(tmp_path), *FLAGS]
        assert transform(*words).status == 1
        (tmp_path / "in" / "b").write_text("other\n")
        (tmp_path / "out" / "d.err").unlink()
        before = posts(echo)
        done = on_ray(cluster, *words)
        assert posts(echo) - before == 3
    assert (done.status, done.log.count("Traceback")) == (1, 0)
    assert done.summary["objects"] == {"all": 4, "done": 1, "already_done": 2, "failed": 1}
    written = outputs(tmp_path / "out")
    assert written.keys() == {"a.out", "b.out", "c.out", "d.err"}
    assert written["b.out"] == b"other\n"
    assert json.loads(written["d.err"])["record"] == 2


def test_a_model_that_no_node_can_serve(tmp_path: Path, cluster: RayCluster) -> None:
    archive = stand_in_archive(tmp_path / "model.tar.gz", "no python at all !")
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a").write_text("a")
    words = ["--model", str(archive), "--model-server", stand_in_program(tmp_path)]
    done = on_ray(cluster, *words, *places(tmp_path))
    assert done.status == 3, done.log
    assert "code/inference.py is not valid Python" in done.log
    assert outputs(tmp_path / "out") == {}


def test_no_cluster(tmp_path: Path) -> None:
    """An address where nobody listens is said at once, also where the environment names it."""
    (tmp_path / "a").write_text("a")
    words = ["--endpoint", "http://127.0.0.1:1", *places(tmp_path, "a")]
    done = transform(*words, "--engine", "ray", env={"RAY_ADDRESS": "127.0.0.1:1"})
    assert done.status == 2
    assert "The Ray cluster 127.0.0.1:1 can't be reached" in done.log
    assert not (tmp_path / "out").exists()


def test_a_header_stands_once_before_each_object(tmp_path: Path, cluster: RayCluster, served: Stack) -> None:
    """Also in those that another run, on one machine, has not finished."""
    (tmp_path / "in").mkdir()
    words = ["--endpoint", f"http://{LOOPBACK}:{served.port}", *places(tmp_path), "--id-column", "id"]
    for name in "ab":
        (tmp_path / "in" / f"{name}.csv").write_text(f"id,x\n{name}1,1.0\n{name}2,2.0\n")
        done = (transform if name == "a" else partial(on_ray, cluster))(*words)
        assert (done.status, done.summary["objects"]["done"]) == (0, 1), done.log
    assert outputs(tmp_path / "out") == {
        f"{name}.csv.out": f"id,y\n{name}1,2.5\n{name}2,3.0\n".encode() for name in "ab"
    }
