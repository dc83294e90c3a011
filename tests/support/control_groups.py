"""Control groups of their own for processes of tests, if this machine lets us make them."""

import contextlib
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.waiting import wait_until

GROUPS = Path("/sys/fs/cgroup")
PERIOD_MICROSECONDS = 100_000
LEAVE_SECONDS = 30.0


@contextlib.contextmanager
def limited(
    *, cpus: float | None = None, memory_bytes: int | None = None, tasks: int | None = None
) -> Iterator[list[str]]:
    """A group with these limits; gives the launcher whose command runs in it. Skips if none can be made."""
    name = f"tfs-proxy-test-{uuid.uuid4().hex[:8]}"
    with contextlib.ExitStack() as made:
        folders: set[Path] = set()
        for controller, file, value in _files(cpus, memory_bytes, tasks):
            folder = GROUPS / controller / name
            try:
                if folder not in folders:
                    folder.mkdir()
                    made.callback(_remove, folder)
                (folder / file).write_text(value)
            except OSError as error:
                pytest.skip(f"no control group can be made here: {error}")
            folders.add(folder)
        enter = "".join(f"echo $$ > {folder}/cgroup.procs && " for folder in sorted(folders))
        yield ["sh", "-c", f'{enter}exec "$@"', "sh"]


def _files(cpus: float | None, memory_bytes: int | None, tasks: int | None) -> Iterator[tuple[str, str, str]]:
    """Controller, file and text of each limit, in the version of control groups that is mounted here."""
    version_2 = (GROUPS / "cgroup.controllers").exists()
    quota = str(int((cpus or 0) * PERIOD_MICROSECONDS))
    if cpus is not None and version_2:
        yield "", "cpu.max", f"{quota} {PERIOD_MICROSECONDS}"
    elif cpus is not None:
        yield "cpu", "cpu.cfs_period_us", str(PERIOD_MICROSECONDS)
        yield "cpu", "cpu.cfs_quota_us", quota
    if memory_bytes is not None and version_2:
        yield "", "memory.max", str(memory_bytes)
    elif memory_bytes is not None:
        yield "memory", "memory.limit_in_bytes", str(memory_bytes)
    if tasks is not None:
        yield "" if version_2 else "pids", "pids.max", str(tasks)


def _remove(folder: Path) -> None:
    """Remove a group once its last process has left it."""
    wait_until(
        lambda: not (folder / "cgroup.procs").read_text(), LEAVE_SECONDS, f"no process is left in {folder}"
    )
    folder.rmdir()
