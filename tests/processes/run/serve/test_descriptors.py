"""Open files of a serving stack: the limit is raised at the start; the attack holds idle connections at a small one."""

import re
import resource
from pathlib import Path

import pytest

from support.archives import stand_in_words
from support.stack import serving
from tfs_proxy.values.resources import MOST_DESCRIPTORS

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


@pytest.mark.parametrize("most", [1024, MOST_DESCRIPTORS])
def test_the_limit_is_raised_for_all_processes(tmp_path: Path, most: int) -> None:
    """From 256 to the hard limit, with a warning if that is little."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = most if hard == resource.RLIM_INFINITY else min(hard, most)
    with serving(*stand_in_words(tmp_path), launcher=limited(256, wanted)) as stack:
        pids = [stack.process.pid, *(pid for pids in stack.children().values() for pid in pids)]
        limits = [limit for pid in pids for limit in open_files_limits(pid)]

    assert len(limits) >= LEAST_PROCESSES
    assert set(limits) == {str(wanted)}
    assert (f"only {wanted} open files are allowed" in stack.log) == (most == 1024)
