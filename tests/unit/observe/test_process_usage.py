"""What a process uses: sums over a tree of processes, and over the lives of one."""

import os
import subprocess
import sys
from pathlib import Path

from tfs_proxy.observe.process_usage import NeverFalling, ProcessUsage, usage, usage_of_tree


def test_a_process_counts_with_its_children() -> None:
    """This test's process and a child, which alone has used something too."""
    program = "import sys; print(flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        alone, both = usage(child.pid), usage_of_tree(os.getpid())
        child.communicate()

    assert alone.resident_bytes > 1e6
    assert alone.open_files >= 3
    assert both.resident_bytes > alone.resident_bytes
    assert both.cpu_seconds > 0
    assert both.cpu_seconds >= alone.cpu_seconds


def test_what_has_ended_uses_nothing(tmp_path: Path) -> None:
    """Also where there is no /proc at all."""
    assert usage_of_tree(os.getpid(), tmp_path) == ProcessUsage()


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
