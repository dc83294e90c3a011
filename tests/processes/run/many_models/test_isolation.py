"""What one model's script or server does to itself must not reach another model."""

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from support import gates
from support.archives import NEEDS_NGINX
from support.gates import gate
from support.multi_model import MultiModelStack, script_model, serving_many

pytestmark = [pytest.mark.tensorflow, NEEDS_NGINX]
JSON = "application/json"
IMPORTS = """
import rules


def model_fn(model_dir):
    return rules.WORD


def transform_fn(model, data, content_type, accept):
    import late

    return f"{model} {late.WORD} {rules.__name__}", "text/plain"
"""
EXITS = f"""{gates.SCRIPT}
import os


def model_fn(model_dir):
    return None


def transform_fn(model, data, content_type, accept):
    if data == b"exit":
        os._exit(1)
    if data.startswith(b"/"):
        hold(data.decode())
    return str(os.getpid()), "text/plain"
"""

LEAVES_ORPHANS = """
import subprocess


def model_fn(model_dir):
    return None


def transform_fn(model, data, content_type, accept):
    command = "setsid sleep 2 >/dev/null 2>&1 & echo $!"
    return subprocess.run(["sh", "-c", command], capture_output=True, check=True).stdout, "text/plain"
"""
INHERITS_ORPHANS = """
import ctypes, os, sys

PR_SET_CHILD_SUBREAPER = 36
assert ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
os.execvp(sys.argv[1], sys.argv[1:])
"""


def test_modules_of_one_name_do_not_meet(many: MultiModelStack, tmp_path: Path) -> None:
    """Each model's script gets its own, whether it imports it at its start or at a request."""
    words = ("first", "second")
    for word in words:
        files = {"code/rules.py": f"WORD = {word!r}\n", "code/late.py": f"WORD = 'late {word}'\n"}
        many.loaded(f"own-{word}", script_model(tmp_path / f"{word}.tar.gz", IMPORTS, **files))

    answers = [many.invoke_model(f"own-{word}", "x").body.decode() for word in words * 2]

    assert answers == ["first late first rules", "second late second rules"] * 2
    assert {many.unload(f"own-{word}").status for word in words} == {200}


def test_a_script_that_ends_its_process_ends_no_other(many: MultiModelStack, tmp_path: Path) -> None:
    """Its own request is a 502 in JSON; its worker comes back, and the other's is the same as before."""
    many.loaded("exits", script_model(tmp_path / "a.tar.gz", EXITS))
    many.loaded("stays", script_model(tmp_path / "b.tar.gz", EXITS))
    worker, other = (many.invoke_model(name, "x").body for name in ("exits", "stays"))

    answer = many.invoke_model("exits", "exit")

    assert answer.status == 502
    assert "ended before it answered" in answer.json["error"]
    assert many.invoke_model("stays", "x").body == other
    many.wait_until(lambda: many.answers("exits", "x"), "the model answers again")
    assert many.invoke_model("exits", "x").body != worker
    assert {many.unload(name).status for name in ("exits", "stays")} == {200}


def test_a_script_that_hangs_holds_up_no_other(tmp_path: Path) -> None:
    """Its request is a 504 at the deadline, its worker is replaced; others do not wait."""
    with (
        serving_many(env={"TFS_PROXY_REQUEST_TIMEOUT_SECONDS": "1.5"}) as stack,
        ThreadPoolExecutor(1) as pool,
        gate(tmp_path / "gate") as shut,
    ):
        stack.loaded("hangs", script_model(tmp_path / "a.tar.gz", EXITS))
        stack.loaded("goes-on", script_model(tmp_path / "b.tar.gz", EXITS))
        hanging = pool.submit(stack.invoke_model, "hangs", shut.mark())
        shut.wait_for()
        assert [stack.invoke_model("goes-on", "x").status for _ in range(20)] == [200] * 20
        assert hanging.result().status == 504
        stack.wait_until(lambda: stack.answers("hangs", "x"), "the model answers again")


def parent_of(pid: int) -> int | None:
    """The parent of a process, None once nothing is left of it."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[1])
    except OSError:
        return None


def test_what_a_script_leaves_behind_is_collected_at_its_end(tmp_path: Path) -> None:
    """As PID 1 of a container, for which this stack stands in, the supervisor inherits it."""
    with serving_many(launcher=[sys.executable, "-c", INHERITS_ORPHANS]) as stack:
        stack.loaded("a", script_model(tmp_path / "a.tar.gz", LEAVES_ORPHANS))
        orphan = int(stack.invoke_model("a", "x").body)
        supervisor = stack.process.pid
        stack.wait_until(lambda: parent_of(orphan) == supervisor, "the supervisor inherits the orphan")
        stack.wait_until(lambda: parent_of(orphan) is None, "nothing is left of it")
