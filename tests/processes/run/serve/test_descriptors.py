"""Open files of a serving stack: the limit is raised at the start, and a small one stops nothing."""

import re
import resource
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from support.archives import NEEDS_NGINX, stand_in_words
from support.stack import Stack
from tfs_proxy.values.resources import MOST_DESCRIPTORS, raise_descriptor_limit

IDLE = 1100
LEAST_PROCESSES = 4
"""The supervisor, gunicorn, a worker and the model server."""


def limited(soft: int, hard: int) -> list[str]:
    """A command that lowers the limits of what follows."""
    return ["sh", "-c", f'ulimit -Sn {soft} && ulimit -Hn {hard} && exec "$@"', "sh"]


def open_files_limits(pid: int) -> list[str]:
    """The limit of a process; none if it has ended."""
    try:
        return re.findall(r"Max open files\s+(\d+)", Path(f"/proc/{pid}/limits").read_text())
    except OSError:
        return []


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Stack]:
    """A stack whose processes may open 1,024 files each."""
    raise_descriptor_limit()  # of the test, whose clients are many
    stack = Stack(
        *stand_in_words(tmp_path),
        env={"SAGEMAKER_GUNICORN_WORKERS": "1"},
        launcher=limited(1024, 1024),
    )
    try:
        stack.wait_ready()
        yield stack
    finally:
        stack.close()


@NEEDS_NGINX
def test_idle_connections_leave_room_for_requests(small: Stack) -> None:
    """1,100 of them at 1,024 descriptors: those that wait longest are closed, and that it is little is said."""
    with ExitStack() as held:
        for _ in range(IDLE):
            held.enter_context(socket.create_connection((small.host, small.port), timeout=30))
        statuses = [small.ask("GET", "/ping").status, small.invoke('{"instances": [1.0]}').status]

    assert statuses == [200, 200]
    assert "only 1024 open files are allowed" in small.log
    assert "Too many open files" not in small.log


def test_the_limit_is_raised_for_all_processes(tmp_path: Path) -> None:
    """From 256 to the hard limit, and no warning."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, MOST_DESCRIPTORS)
    stack = Stack(*stand_in_words(tmp_path), launcher=limited(256, wanted))
    try:
        stack.wait_ready()
        pids = [stack.process.pid, *(pid for pids in stack.children().values() for pid in pids)]
        limits = [limit for pid in pids for limit in open_files_limits(pid)]
    finally:
        stack.close()

    assert len(limits) >= LEAST_PROCESSES
    assert set(limits) == {str(wanted)}
    assert "open files are allowed" not in stack.log
