"""Loads leave the CPU to models that serve, if this machine lets a process's niceness be taken back (Linux)."""

import contextlib
import os
import sys
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from support import gates
from support.archives import NEEDS_NGINX, pack
from support.gates import gate
from support.multi_model import MultiModelStack, saying, script_model, serving_many
from support.processes import descendants
from tfs_proxy.run.host.load_priority import NOT_RESTORED, LoadPriority

pytestmark = [pytest.mark.tensorflow, NEEDS_NGINX]
HELD_SCRIPT = """
def handler(data, context):
    return str(context.predict([2.0])["y"].tolist()), "text/plain"
"""
WITHOUT_THE_CAPABILITY = """
import ctypes, os, sys

PR_CAPBSET_DROP, CAP_SYS_NICE = 24, 23
ctypes.CDLL(None).prctl(PR_CAPBSET_DROP, CAP_SYS_NICE, 0, 0, 0)
os.execvp(sys.argv[1], sys.argv[1:])
"""


def niceness(pids: Iterable[int]) -> set[int]:
    """That of all threads of processes, of which some may end meanwhile."""
    found: set[int] = set()
    for pid in pids:
        with contextlib.suppress(OSError):
            for thread in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208 - they come and go
                with contextlib.suppress(OSError):
                    found.add(os.getpriority(os.PRIO_PROCESS, int(thread)))
    return found


def below(stack: MultiModelStack) -> set[int]:
    """All processes below the supervisor."""
    return set(descendants(stack.process.pid))


def test_a_load_has_low_priority_until_the_model_is_ready(
    many: MultiModelStack, saved_models: Path, tmp_path: Path
) -> None:
    """Its model server, its gunicorn and its worker; no other process, and none of them afterwards."""
    priority = LoadPriority()
    if not priority.can_be_restored:
        pytest.skip("this machine lets nobody take niceness back")
    before = below(many)
    with ThreadPoolExecutor(1) as pool, gate(tmp_path / "gate") as shut:
        script = f"{gates.SCRIPT}\nhold({shut.mark()!r})\n{HELD_SCRIPT}"
        model = {"half": saved_models / "half_plus_two"}
        archive = pack(tmp_path / "a.tar.gz", {"code/inference.py": script}, model)
        loading = pool.submit(many.load, "patient", archive)
        shut.wait_for()
        own = below(many) - before
        assert many.children()["embedded"]
        assert niceness(own) == {priority.lowered}
        assert niceness(before | {many.process.pid}) == {priority.normal}
        shut.open()
        assert loading.result().status == 200

    assert niceness(below(many)) == {priority.normal}
    assert many.invoke_model("patient", "x").body == b"[3.0]"
    assert niceness(below(many)) == {priority.normal}
    assert many.unload("patient").status == 200


def test_without_the_right_to_raise_it_again_loads_have_normal_priority(tmp_path: Path) -> None:
    """They would stay slow for ever; the start says what would help."""
    launcher = [sys.executable, "-c", WITHOUT_THE_CAPABILITY]
    normal = os.getpriority(os.PRIO_PROCESS, 0)
    with (
        serving_many(launcher=launcher) as stack,
        ThreadPoolExecutor(1) as pool,
        gate(tmp_path / "gate") as shut,
    ):
        stack.wait_for_log(NOT_RESTORED)
        before = below(stack)
        held = f"{gates.SCRIPT}\nhold({shut.mark()!r})\n{saying('late')}"
        loading = pool.submit(stack.load, "slow", script_model(tmp_path / "a.tar.gz", held))
        shut.wait_for()
        assert below(stack) > before
        assert niceness(below(stack)) == {normal}
        shut.open()
        assert loading.result().status == 200
