"""CPU and memory that control groups leave us, from recorded trees, and the workers that come of it."""

import pytest

from tfs_proxy.values.resources import (
    MemoryLeft,
    Resources,
    Shortfalls,
    default_workers,
    group_limits,
    group_shortfalls,
    groups_memory_left,
    machine_memory_left,
)

MEGABYTE = 1024 * 1024
GIGABYTE = 1024 * MEGABYTE
NO_LIMIT_V1 = "9223372036854771712\n"
V1_IN_DOCKER = """\
12:memory:/docker/2a5d
11:cpuset:/docker/2a5d
8:pids:/docker/2a5d
4:cpu,cpuacct:/docker/2a5d
1:name=systemd:/docker/2a5d
0::/system.slice/containerd.service
"""


@pytest.mark.parametrize(
    ("memberships", "files", "limits"),
    [
        pytest.param(
            "0::/\n",
            {"cpu.max": "150000 100000\n", "memory.max": f"{2 * GIGABYTE}\n"},
            (1.5, 2 * GIGABYTE, None),
            id="v2, container",
        ),
        pytest.param(
            "0::/\n", {"cpu.max": "max 1\n", "memory.max": "max\n"}, (None, None, None), id="v2, max"
        ),
        pytest.param(
            "0::/user.slice/user-0.slice/run-r1.scope\n",
            {
                "user.slice/user-0.slice/run-r1.scope/cpu.max": "max 100000\n",
                "user.slice/user-0.slice/run-r1.scope/memory.max": "4294967296\n",
                "user.slice/user-0.slice/cpu.max": "400000 100000\n",
                "user.slice/user-0.slice/memory.max": "max\n",
                "user.slice/user-0.slice/pids.max": "max\n",
                "user.slice/pids.max": "64\n",
                "user.slice/cpu.max": "300000 100000\n",
                "user.slice/memory.max": "1073741824\n",
            },
            (3.0, GIGABYTE, 64),
            id="v2, nested: the smallest on the way up",
        ),
        pytest.param(
            "0::/../../pod7\n",
            {"cpu.max": "50000 100000\n"},
            (0.5, None, None),
            id="v2, outside its namespace",
        ),
        pytest.param(
            V1_IN_DOCKER,
            {
                "cpu/cpu.cfs_quota_us": "250000\n",
                "cpu/cpu.cfs_period_us": "100000\n",
                "memory/memory.limit_in_bytes": "536870912\n",
            },
            (2.5, 512 * MEGABYTE, None),
            id="v1, container: its own group is the top of the mount",
        ),
        pytest.param(
            V1_IN_DOCKER,
            {
                "cpu/docker/2a5d/cpu.cfs_quota_us": "-1\n",
                "cpu/docker/2a5d/cpu.cfs_period_us": "100000\n",
                "cpu/docker/cpu.cfs_quota_us": "200000\n",
                "cpu/docker/cpu.cfs_period_us": "50000\n",
                "cpu/cpu.cfs_quota_us": "-1\n",
                "cpu/cpu.cfs_period_us": "100000\n",
                "memory/docker/2a5d/memory.limit_in_bytes": "2147483648\n",
                "memory/memory.limit_in_bytes": NO_LIMIT_V1,
                "pids/docker/2a5d/pids.max": "100\n",
                "pids/pids.max": "max\n",
            },
            (4.0, 2 * GIGABYTE, 100),
            id="v1, seen from the host",
        ),
        pytest.param("", {}, (None, None, None), id="no control groups"),
        pytest.param("0::/\n", {"cpu.max": "\n", "memory.max": "x\n"}, (None, None, None), id="unreadable"),
    ],
)
def test_limits_are_the_smallest_of_every_group_upwards(
    memberships: str, files: dict[str, str], limits: tuple[float | None, int | None, int | None]
) -> None:
    """Both versions of control groups, in a container and on a host."""
    assert group_limits(memberships, files.get) == limits


@pytest.mark.parametrize(
    ("memberships", "files"),
    [
        (
            "0::/pod/own\n",
            {
                "pod/own/memory.events": "low 0\noom 9\noom_kill 3\noom_group_kill 0\n",
                "pod/memory.events": "oom_kill 8\n",
                "pod/own/pids.events": "max 0\n",
                "pod/pids.events": "max 5\n",
            },
        ),
        (
            "9:pids:/docker/2a5d\n4:memory:/docker/2a5d\n1:name=systemd:/\n",
            {"memory/memory.oom_control": "under_oom 0\noom_kill 3\n", "pids/pids.events": "max 5\n"},
        ),
    ],
)
def test_kills_are_counted_of_the_own_group_and_refusals_of_all(
    memberships: str, files: dict[str, str]
) -> None:
    """A group above has the kills of others, too, and may be the one whose limit refuses a process."""
    assert group_shortfalls(memberships, files.get) == Shortfalls(killed=3, refused=5)


@pytest.mark.parametrize(
    ("resources", "models_bytes", "count", "reason"),
    [
        (Resources(8), 0, 8, "one for each core"),
        (Resources(64, 1.5), 0, 2, "limited by the CPU limit of 1.5"),
        (Resources(2, 4.0), 0, 2, "one for each core"),
        (
            Resources(64, None, 2 * GIGABYTE),
            100 * MEGABYTE,
            9,
            "limited by 2048 MB of memory (the models count as 2 x 100 MB, what always runs as 465 MB, a worker as 150 MB)",
        ),
        (Resources(64, 3.0, 2 * GIGABYTE), 0, 3, "limited by the CPU limit of 3"),
        (
            Resources(4, None, GIGABYTE),
            GIGABYTE,
            1,
            "limited by 1024 MB of memory (the models count as 2 x 1024 MB, what always runs as 465 MB, a worker as 150 MB)",
        ),
        (Resources(1, None, GIGABYTE), GIGABYTE, 1, "one for each core"),
        (Resources(8, tasks=80), 0, 2, "limited by 80 processes and threads (pids.max)"),
        (Resources(8, tasks=10), 0, 1, "limited by 10 processes and threads (pids.max)"),
        (Resources(8, tasks=4096), 0, 8, "one for each core"),
    ],
)
def test_workers_are_the_smaller_of_cores_and_what_memory_holds(
    resources: Resources, models_bytes: int, count: int, reason: str
) -> None:
    """At least one, and the reason says which of them decided."""
    workers = default_workers(resources, models_bytes)

    assert (workers.count, workers.reason) == (count, reason)


V2_STAT = f"""\
anon {600 * MEGABYTE}
file {300 * MEGABYTE}
shmem {20 * MEGABYTE}
file_mapped {80 * MEGABYTE}
inactive_file {200 * MEGABYTE}
active_file {80 * MEGABYTE}
"""
V1_STAT = f"""\
inactive_file {MEGABYTE}
hierarchical_memory_limit {GIGABYTE}
total_mapped_file {80 * MEGABYTE}
total_inactive_file {200 * MEGABYTE}
total_active_file {80 * MEGABYTE}
"""


@pytest.mark.parametrize(
    ("memberships", "files", "left"),
    [
        pytest.param(
            "0::/\n",
            {"memory.max": "max\n", "memory.current": f"{900 * MEGABYTE}\n", "memory.stat": V2_STAT},
            [],
            id="v2, no limit",
        ),
        pytest.param(
            "0::/\n",
            {
                "memory.max": f"{GIGABYTE}\n",
                "memory.current": f"{900 * MEGABYTE}\n",
                "memory.stat": V2_STAT,
            },
            [MemoryLeft(GIGABYTE, (1024 - 900 + 200) * MEGABYTE)],
            id="v2: the cache counts as free, except what is mapped",
        ),
        pytest.param(
            "0::/pod/container\n",
            {
                "pod/container/memory.max": f"{GIGABYTE}\n",
                "pod/container/memory.current": f"{100 * MEGABYTE}\n",
                "pod/memory.max": f"{2 * GIGABYTE}\n",
                "pod/memory.current": f"{2000 * MEGABYTE}\n",
            },
            [MemoryLeft(GIGABYTE, 924 * MEGABYTE), MemoryLeft(2 * GIGABYTE, 48 * MEGABYTE)],
            id="v2, nested: neighbours in the group above count",
        ),
        pytest.param(
            "0::/\n",
            {"memory.max": f"{GIGABYTE}\n", "memory.current": f"{1025 * MEGABYTE}\n"},
            [MemoryLeft(GIGABYTE, 0)],
            id="v2, above its limit",
        ),
        pytest.param(
            V1_IN_DOCKER,
            {
                "memory/memory.limit_in_bytes": f"{GIGABYTE}\n",
                "memory/memory.usage_in_bytes": f"{900 * MEGABYTE}\n",
                "memory/memory.stat": V1_STAT,
            },
            [MemoryLeft(GIGABYTE, (1024 - 900 + 200) * MEGABYTE)],
            id="v1: with the groups below",
        ),
    ],
)
def test_memory_left_in_every_group_with_a_limit(
    memberships: str, files: dict[str, str], left: list[MemoryLeft]
) -> None:
    """Both versions of control groups: the limit, less what is used and can't be given back at once."""
    assert list(groups_memory_left(memberships, files.get)) == left


def test_the_machine_tells_what_is_available() -> None:
    """From the text of /proc/meminfo of a machine of 16 GB; nothing from any other text."""
    meminfo = "MemTotal:       16384000 kB\nMemFree:         1024000 kB\nMemAvailable:    8192000 kB\nHugePages_Total: 0\n"

    assert list(machine_memory_left(meminfo)) == [MemoryLeft(16384000 * 1024, 8192000 * 1024)]
    assert list(machine_memory_left("MemTotal:       16384000 kB\n")) == []
