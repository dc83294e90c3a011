"""CPU, memory, tasks and open files that this process may use: defaults are computed from them.

A container sees its own limits at the top of ``/sys/fs/cgroup``; a process on a host is in a group below,
named in ``/proc/self/cgroup``, and every group above it limits it, too.
"""

import math
import os
import re
import resource
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path, PurePosixPath

from msgspec import Struct

from tfs_proxy.values.memory import KILOBYTE, MEGABYTE

GROUPS = Path("/sys/fs/cgroup")
MEMBERSHIPS = Path("/proc/self/cgroup")
MACHINE_MEMORY = Path("/proc/meminfo")
MOUNTS = Path("/proc/self/mountinfo")
_NO_LIMIT_BYTES = 2**62
WORKER_BYTES = 150 * MEGABYTE
"""Memory of one worker with a usual script, NumPy and Pillow imported."""

RUN_BYTES = 100 * MEGABYTE
"""Memory (PSS) of what always runs: supervisor 37, gRPC 34, gunicorn 24, nginx 7 MB."""

SERVER_BYTES = 365 * MEGABYTE
"""The same of an embedded model server without its model; the official one takes 310 MB."""

WORKER_TASKS = 8
"""Processes and threads of one worker, with a few threads for requests."""

RUN_TASKS = 32
RUN_TASKS_PER_CORE = 4
"""Processes and threads of a run without its workers and the threads that answer requests."""

CONCURRENCY = 256
"""Default of requests in flight in all workers: those that wait for one model must not hold up the others."""

MODEL_FACTOR = 2
"""Bytes of memory for each byte of a model on disk, until a loaded model has been measured."""

MOST_DESCRIPTORS = 65_536
"""Most open files to ask for; some programs keep a table of as many as are allowed."""

MOST_THREADS = 1 << 16
FEW_DESCRIPTORS = 4096
"""Limit of open files that may be too low for a thousand clients and their requests' connections."""

ReadGroupFile = Callable[[str], str | None]
"""Reader of a file below ``/sys/fs/cgroup``: its text, None if there is none."""


class Resources(Struct, frozen=True):
    """Resources that this process may use; None means no limit.

    Schedulable cores, a CPU limit in cores, memory, and tasks: processes and threads together.
    """

    schedulable: int
    cpu_limit: float | None = None
    memory_bytes: int | None = None
    tasks: int | None = None

    @property
    def cores(self) -> int:
        """Cores that can be kept busy, rounded up: a limit of 1.5 is 2."""
        if self.cpu_limit is None:
            return self.schedulable
        return min(self.schedulable, max(1, math.ceil(self.cpu_limit)))

    @property
    def limits_cores(self) -> bool:
        """True if the CPU limit leaves fewer cores than may be scheduled, which TensorFlow does not see."""
        return self.cores < self.schedulable

    @property
    def tasks_for_requests(self) -> int | None:
        """Tasks that workers and the threads for requests may be, at least 1; None for any number."""
        if self.tasks is None:
            return None
        return max(1, self.tasks - RUN_TASKS - RUN_TASKS_PER_CORE * self.cores)


class MemoryLeft(Struct, frozen=True):
    """The memory of a control group or of the machine: its limit, and what can still be taken."""

    limit_bytes: int
    free_bytes: int


class Shortfalls(Struct, frozen=True):
    """Processes that Linux has killed for lack of memory, and processes and threads it has not started."""

    killed: int = 0
    refused: int = 0


class WorkerCount(Struct, frozen=True):
    """Number of workers by default, and the reason, as a phrase."""

    count: int
    reason: str


def default_workers(resources: Resources, models_bytes: int) -> WorkerCount:
    """One worker for each core, or as many as memory and tasks allow if that is fewer; at least 1.

    ``models_bytes`` is the size of all models on disk: loaded, they count `MODEL_FACTOR` times.
    """
    held_by_tasks = max(1, (resources.tasks_for_requests or MOST_THREADS) // WORKER_TASKS)
    if resources.memory_bytes is not None:
        held = max(1, bytes_left(resources.memory_bytes, models_bytes) // WORKER_BYTES)
        if held < min(resources.cores, held_by_tasks + 1):
            return WorkerCount(held, f"limited by {memory_shares(resources.memory_bytes, models_bytes)}")
    if held_by_tasks < resources.cores:
        return WorkerCount(held_by_tasks, f"limited by {resources.tasks} processes and threads (pids.max)")
    if resources.limits_cores:
        return WorkerCount(resources.cores, f"limited by the CPU limit of {resources.cpu_limit:g}")
    return WorkerCount(resources.cores, "one for each core")


def bytes_left(memory_bytes: int, models_bytes: int, workers: int = 0) -> int:
    """Memory that is left beside what always runs, models and workers; below 0 if they have too little."""
    taken_bytes = always_bytes(models_bytes) + MODEL_FACTOR * models_bytes + workers * WORKER_BYTES
    return memory_bytes - taken_bytes


def always_bytes(models_bytes: int) -> int:
    return RUN_BYTES + (SERVER_BYTES if models_bytes else 0)


def memory_shares(memory_bytes: int, models_bytes: int) -> str:
    """Describe the memory that there is, and what counts towards it."""
    models = math.ceil(models_bytes / MEGABYTE)
    always = always_bytes(models_bytes) // MEGABYTE
    return (
        f"{memory_bytes // MEGABYTE} MB of memory (the models count as {MODEL_FACTOR} x {models} MB, "
        f"what always runs as {always} MB, a worker as {WORKER_BYTES // MEGABYTE} MB)"
    )


class Machine(Struct, frozen=True):
    """Facts for defaults: cores, memory, and the batch job of SageMaker's with its concurrent requests.

    ``models_bytes`` is the size of the models on disk, 0 until it is known.
    """

    resources: Resources
    batch: bool
    concurrent: int | None
    models_bytes: int = 0

    @property
    def cores(self) -> int:
        return self.resources.cores

    @property
    def workers(self) -> WorkerCount:
        return default_workers(self.resources, self.models_bytes)

    @property
    def worker_threads(self) -> int:
        """The default threads of each worker."""
        count = self.workers.count
        return min(max(8, CONCURRENCY // count), self.most_threads // count or 1)

    @property
    def most_threads(self) -> int:
        """Threads that all workers may have together; a model server that they call may have as many."""
        tasks = self.resources.tasks_for_requests
        return MOST_THREADS if tasks is None else max(1, tasks // 2 - 2 * self.workers.count)

    @property
    def answer_mb(self) -> int:
        """The default limit of an answer, which takes several times as much memory decoded."""
        most = 2047  # protobuf's
        return min(max(256, (self.resources.memory_bytes or 16 * most * MEGABYTE) // 16 // MEGABYTE), most)

    @property
    def tensorflow_threads(self) -> int:
        """Threads of TensorFlow's pools; 0 leaves them to it, but it does not see a CPU limit."""
        return self.cores if self.resources.limits_cores else 0

    @property
    def busy(self) -> bool:
        """True if a batch job keeps every core busy with a request of its own.

        If the job does not limit concurrent requests, ``/execution-parameters`` asks for more than cores.
        """
        return self.batch and (self.concurrent is None or self.concurrent >= self.cores)


def available_resources() -> Resources:
    """Read the limits of this process."""
    cpu_limit, memory_limit, tasks = group_limits(_text(MEMBERSHIPS) or "", lambda name: _text(GROUPS / name))
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    memory = [size for size in (memory_limit, _memory_of_the_machine()) if size is not None]
    return Resources(cores, cpu_limit, min(memory, default=None), tasks)


def memory_left() -> MemoryLeft | None:
    """Memory that this process can still take, by the tightest limit on it; None if nothing limits it."""
    groups = groups_memory_left(_text(MEMBERSHIPS) or "", lambda name: _text(GROUPS / name))
    rooms = [*groups, *machine_memory_left(_text(MACHINE_MEMORY) or "")]
    return min(rooms, key=lambda room: room.free_bytes, default=None)


def shortfalls() -> Shortfalls:
    """The counts of this process's control group so far."""
    return group_shortfalls(_text(MEMBERSHIPS) or "", lambda name: _text(GROUPS / name))


def raise_descriptor_limit() -> str | None:
    """Raise the soft limit of open files to the hard one, for child processes too.

    Returns a sentence if few are allowed even so.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, MOST_DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    allowed = most_descriptors()
    if allowed >= FEW_DESCRIPTORS:
        return None
    return (
        f"only {allowed} open files are allowed: beyond that idle connections are closed for new ones. "
        f"Allow {MOST_DESCRIPTORS} (ulimit -Hn, docker run --ulimit nofile={MOST_DESCRIPTORS})."
    )


def most_descriptors() -> int:
    """Number of files and sockets that this process may have open, at most `MOST_DESCRIPTORS`."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST_DESCRIPTORS if soft == resource.RLIM_INFINITY else soft


def group_limits(memberships: str, read: ReadGroupFile) -> tuple[float | None, int | None, int | None]:
    """Limits of CPU in cores, memory in bytes, and tasks: the smallest on the way up; None without one.

    ``memberships`` is the text of ``/proc/self/cgroup``. Both versions of control groups are understood.
    """
    cpus: list[float] = []
    sizes: list[int] = []
    tasks: list[int] = []
    for controllers, group in _groups(memberships):
        if not controllers:
            cpus.extend(_cpus((read(f"{group}cpu.max") or "").split()))
            sizes.extend(_size(read(f"{group}memory.max")))
        if "cpu" in controllers:
            names = (f"cpu/{group}cpu.cfs_quota_us", f"cpu/{group}cpu.cfs_period_us")
            cpus.extend(_cpus([(read(name) or "").strip() for name in names]))
        if "memory" in controllers:
            sizes.extend(_size(read(f"memory/{group}memory.limit_in_bytes")))
        if not controllers or "pids" in controllers:
            tasks.extend(_size(read(f"{'pids/' if controllers else ''}{group}pids.max")))
    return min(cpus, default=None), min(sizes, default=None), min(tasks, default=None)


def group_shortfalls(memberships: str, read: ReadGroupFile) -> Shortfalls:
    """The counts of the group itself, which has no others' kills; arguments are those of `group_limits`.

    A process is not started by the limit of any group upwards, in which newer kernels count it.
    """
    killed: list[int] = []
    refused = 0
    for controllers, group in _groups(memberships):
        if not controllers or "memory" in controllers:
            name = f"memory/{group}memory.oom_control" if controllers else f"{group}memory.events"
            if (text := read(name)) is not None:
                killed.append(_numbers(text).get("oom_kill", 0))
        if not controllers or "pids" in controllers:
            name = f"{'pids/' if controllers else ''}{group}pids.events"
            refused += _numbers(read(name) or "").get("max", 0)
    return Shortfalls(next(iter(killed), 0), refused)


def groups_memory_left(memberships: str, read: ReadGroupFile) -> Iterator[MemoryLeft]:
    """Memory that every group upwards with a limit can still take; arguments are those of `group_limits`."""
    for controllers, group in _groups(memberships):
        if not controllers:
            files = (f"{group}memory.max", f"{group}memory.current", f"{group}memory.stat")
            yield from _left_in_group(files, "", "file_mapped", read)
        if "memory" in controllers:
            folder = f"memory/{group}memory"
            files = (f"{folder}.limit_in_bytes", f"{folder}.usage_in_bytes", f"{folder}.stat")
            yield from _left_in_group(files, "total_", "total_mapped_file", read)


def _left_in_group(
    files: tuple[str, str, str], prefix: str, mapped: str, read: ReadGroupFile
) -> Iterator[MemoryLeft]:
    """Memory that one group with a limit can still take: cached files that no process has mapped are free."""
    limit_file, usage_file, stat_file = files
    for limit, used in zip(_size(read(limit_file)), _size(read(usage_file)), strict=False):
        # Version 1 has no word for "no limit": it shows the largest multiple of a page.
        if limit < _NO_LIMIT_BYTES:
            pages = _numbers(read(stat_file) or "")
            cached = pages.get(f"{prefix}inactive_file", 0) + pages.get(f"{prefix}active_file", 0)
            reclaimable = max(0, cached - pages.get(mapped, 0))
            yield MemoryLeft(limit, max(0, limit - used + min(reclaimable, used)))


def machine_memory_left(meminfo: str) -> Iterator[MemoryLeft]:
    """Memory that the machine has left, by the text of ``/proc/meminfo``."""
    kilobytes = _numbers(meminfo.replace(":", ""))
    if "MemTotal" in kilobytes and "MemAvailable" in kilobytes:
        yield MemoryLeft(kilobytes["MemTotal"] * KILOBYTE, kilobytes["MemAvailable"] * KILOBYTE)


def _numbers(text: str) -> dict[str, int]:
    """The lines that are a name and a number, which a unit may follow."""
    lines = (line.split() for line in text.splitlines())
    return {words[0]: int(words[1]) for words in lines if len(words) > 1 and words[1].isdecimal()}


def _groups(memberships: str) -> Iterator[tuple[list[str], str]]:
    """Controllers (none: version 2) and path, relative and with a slash at its end, of each group upwards."""
    for line in memberships.splitlines():
        _, controllers, path = line.split(":", 2)
        own = PurePosixPath(path.lstrip("/"))
        for folder in (own, *own.parents):
            prefix = "" if folder == PurePosixPath() else f"{folder}/"
            yield (controllers.split(",") if controllers else []), prefix


def _cpus(quota_and_period: list[str]) -> Iterable[float]:
    """The limit in cores; nothing for ``max``, -1 and files that are not there."""
    with suppress(ValueError):
        quota, period = map(int, quota_and_period)
        if quota > 0 and period > 0:
            return [quota / period]
    return []


def _size(text: str | None) -> Iterable[int]:
    with suppress(ValueError):
        return [int(text or "")]
    return []


def mounts(table: Path = MOUNTS) -> dict[Path, str]:
    """The kind of file system at each mount point (Linux; elsewhere none)."""
    with suppress(OSError):
        rows = re.findall(r"^(?:\S+ ){4}(\S+) .* - (\S+)", os.fsdecode(table.read_bytes()), re.MULTILINE)
        return {
            Path(re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), at)): kind for at, kind in rows
        }
    return {}


def _memory_of_the_machine() -> int | None:
    with suppress(ValueError, OSError):
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return None


def _text(path: Path) -> str | None:
    try:
        return path.read_text()
    except OSError:
        return None
