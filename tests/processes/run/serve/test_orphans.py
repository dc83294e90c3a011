"""Nothing of a run outlives its supervisor, even if the watchdog that sees to it was killed first (Linux)."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.archives import stand_in_archive, stand_in_program, stand_in_words
from support.processes import wait_until_ended
from support.stack import Stack, serving
from support.waiting import wait_until
from tfs_proxy.run.process import ChildProcess, ProcessSpec

SECONDS = 60.0


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    """A stack that is ready."""
    with serving(*stand_in_words(tmp_path)) as running:
        yield running


def watchdogs_of(stack: Stack) -> list[int]:
    """The process ids of its watchdogs; one that has only just been forked still has another name."""
    return [pid for name, pids in stack.children().items() if "watchdog" in name for pid in pids]


def watchdog_of(stack: Stack) -> int:
    """The process id of its watchdog."""
    wait_until(lambda: watchdogs_of(stack), SECONDS, "there is a watchdog")
    (pid,) = watchdogs_of(stack)
    return pid


def everyone(stack: Stack) -> list[int]:
    """All processes below the supervisor."""
    return [pid for pids in stack.children().values() for pid in pids]


def test_a_run_whose_watchdog_and_supervisor_are_killed_ends(stack: Stack) -> None:
    """In this order, and without a moment in which the supervisor could have started another watchdog."""
    pids = everyone(stack)
    assert watchdog_of(stack) in pids
    stack.process.send_signal(signal.SIGSTOP)
    os.kill(watchdog_of(stack), signal.SIGKILL)

    stack.process.kill()

    wait_until_ended(pids)


@pytest.mark.slow
def test_the_next_run_removes_the_folder_that_such_a_run_leaves(tmp_path: Path, stack: Stack) -> None:
    """It holds a copy of the model; folders of runs that live stay, and those without an owner."""
    unknown = stack.home / "tfs-proxy-unknown"
    unknown.mkdir()
    (left,) = set(stack.home.iterdir()) - {unknown}
    archive = stand_in_archive(tmp_path / "next.tar.gz")
    words, env = (
        (str(archive), "--model-server", stand_in_program(tmp_path)),
        {"TFS_PROXY_HOME": str(stack.home)},
    )
    with serving(*words, env=env):
        assert left.exists()
        stack.process.send_signal(signal.SIGSTOP)
        pids = everyone(stack)
        os.kill(watchdog_of(stack), signal.SIGKILL)
        stack.process.kill()
        wait_until_ended(pids)
    assert {left, unknown} <= set(stack.home.iterdir())

    with serving(*words, env=env):
        assert not left.exists()
    assert list(stack.home.iterdir()) == [unknown]
    unknown.rmdir()


def test_a_watchdog_that_is_killed_is_replaced(stack: Stack) -> None:
    """The next one knows what to end, and removes the run's folder as well."""
    first = watchdog_of(stack)
    os.kill(first, signal.SIGKILL)
    stack.wait_for_log("the watchdog was killed: it has been started again", SECONDS)
    assert watchdog_of(stack) != first
    pids = everyone(stack)

    stack.process.kill()

    wait_until_ended(pids)
    wait_until(lambda: not list(stack.home.iterdir()), SECONDS, "the folder of the run is gone")


GUARDING = """
import os, sys
from pathlib import Path
from tfs_proxy.run.host.watchdog import Watchdog

guarded, ended = map(int, sys.argv[2:])
watchdog = Watchdog(Path(sys.argv[1]))
watchdog.guard(guarded)
watchdog.guard(ended)
watchdog.forget(ended)
os._exit(0)
"""


def test_a_process_group_that_has_ended_is_forgotten(tmp_path: Path) -> None:
    """Its number may be somebody else's by then, who is not to be killed."""
    guarded, other = (subprocess.Popen(["sleep", "600"], start_new_session=True) for _ in range(2))
    try:
        words = [str(tmp_path / "run"), str(guarded.pid), str(other.pid)]
        subprocess.run([sys.executable, "-c", GUARDING, *words], check=True)

        assert guarded.wait(SECONDS) == -signal.SIGKILL
        assert other.poll() is None
    finally:
        for process in (guarded, other):
            process.kill()
            process.wait()


def test_a_child_tells_when_nothing_is_left_of_its_group(tmp_path: Path) -> None:
    """Not while a process that it has started itself still runs, though it has ended alone."""
    survivor = tmp_path / "pid"
    argv = ("/bin/sh", "-c", f"sleep 600 & echo $! > {survivor}.new; mv {survivor}.new {survivor}")
    started: list[int] = []
    ended: list[int] = []
    child = ChildProcess(
        ProcessSpec("parent", argv, dict(os.environ)),
        may_restart=lambda _child: False,
        started=started.append,
        ended=ended.append,
    )
    asyncio.run(child.run())

    child.reap_orphans()
    assert ended == []
    os.kill(int(survivor.read_text()), signal.SIGKILL)

    def is_forgotten() -> bool:
        child.reap_orphans()
        return ended == started

    wait_until(is_forgotten, SECONDS, "the group is forgotten")
