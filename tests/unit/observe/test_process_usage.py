"""What a process uses: sums over a tree of processes, and over the lives of one."""

import mmap
import os
import subprocess
import sys
from pathlib import Path

from tfs_proxy.observe.process_usage import (
    NeverFalling,
    ProcessUsage,
    memory_of_tree,
    own_memory_of_tree,
    usage_of_tree,
)


def test_what_has_ended_uses_nothing(tmp_path: Path) -> None:
    assert usage_of_tree(os.getpid(), tmp_path) == ProcessUsage()


def test_own_memory_is_what_no_file_backs() -> None:
    before = own_memory_of_tree(os.getpid())
    with mmap.mmap(-1, 40_000_000) as pages:
        pages.write(b"x" * len(pages))
        after = own_memory_of_tree(os.getpid())

        assert after - before >= len(pages)
        assert after < usage_of_tree(os.getpid()).resident_bytes
    assert own_memory_of_tree(2**22 + 1) == 0


def test_memory_counts_shared_pages_once() -> None:
    """A child that was forked shares most pages; what it writes adds to the sum of both."""
    megabyte = 1024 * 1024
    program = f"""
import os, sys
shared = os.urandom({40 * megabyte})
ready, child_is_ready = os.pipe()
if os.fork() == 0:
    own = os.urandom({20 * megabyte})
    os.write(child_is_ready, b".")
    sys.stdin.read()
    os._exit(0)
os.read(ready, 1)
print(flush=True)
sys.stdin.read()
os.wait()
"""
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as parent:
        assert parent.stdout is not None
        parent.stdout.readline()
        memory_bytes, resident_bytes = memory_of_tree(parent.pid), usage_of_tree(parent.pid).resident_bytes
        parent.communicate()

    assert 60 * megabyte < memory_bytes < 95 * megabyte
    assert resident_bytes > memory_bytes + 35 * megabyte
    assert memory_of_tree(parent.pid) == 0


def test_memory_is_known_without_the_kernels_help(tmp_path: Path) -> None:
    """An older kernel has no smaps_rollup: then what no other process has is counted, from a recorded status."""
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "status").write_text(
        "Name:\tpython3\nVmRSS:\t   90000 kB\nRssAnon:\t   50000 kB\nRssFile:\t   38000 kB\n"
        "RssShmem:\t    2000 kB\nThreads:\t1\n"
    )

    assert memory_of_tree(7, tmp_path) == 52_000 * 1024


def test_a_sum_over_lives_never_falls() -> None:
    """A new process begins at zero; a reading that falls within a life is the same moment seen twice."""
    sums = NeverFalling()

    assert [sums.note(pid, value) for pid, value in ((1, 2.0), (1, 1.9), (1, 3.0), (2, 0.5), (2, 1.0))] == [
        2.0,
        2.0,
        3.0,
        3.5,
        4.0,
    ]
