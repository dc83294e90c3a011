"""CPU and memory that control groups leave us, from recorded trees, and the workers that come of it."""

import pytest

from tfs_proxy.resources import Resources, available_resources, default_workers, group_limits

MEGABYTE = 1024 * 1024
GIGABYTE = 1024 * MEGABYTE
NO_LIMIT_V1 = "9223372036854771712\n"
V1_IN_DOCKER = """\
12:memory:/docker/2a5d
11:cpuset:/docker/2a5d
4:cpu,cpuacct:/docker/2a5d
1:name=systemd:/docker/2a5d
0::/system.slice/containerd.service
"""


@pytest.mark.parametrize(
    ("memberships", "files", "limits"),
    [
        pytest.param("0::/\n", {"memory.stat": "anon 1\n"}, (None, None), id="v2, host, no limits"),
        pytest.param(
            "0::/\n",
            {"cpu.max": "150000 100000\n", "memory.max": f"{2 * GIGABYTE}\n"},
            (1.5, 2 * GIGABYTE),
            id="v2, container",
        ),
        pytest.param(
            "0::/\n",
            {"cpu.max": "max 100000\n", "memory.max": "max\n"},
            (None, None),
            id="v2, container, max",
        ),
        pytest.param(
            "0::/user.slice/user-0.slice/run-r1.scope\n",
            {
                "user.slice/user-0.slice/run-r1.scope/cpu.max": "max 100000\n",
                "user.slice/user-0.slice/run-r1.scope/memory.max": "4294967296\n",
                "user.slice/user-0.slice/cpu.max": "400000 100000\n",
                "user.slice/user-0.slice/memory.max": "max\n",
                "user.slice/cpu.max": "300000 100000\n",
                "user.slice/memory.max": "1073741824\n",
            },
            (3.0, GIGABYTE),
            id="v2, nested: the smallest on the way up",
        ),
        pytest.param(
            "0::/../../pod7\n", {"cpu.max": "50000 100000\n"}, (0.5, None), id="v2, outside its namespace"
        ),
        pytest.param(
            V1_IN_DOCKER,
            {
                "cpu/cpu.cfs_quota_us": "250000\n",
                "cpu/cpu.cfs_period_us": "100000\n",
                "memory/memory.limit_in_bytes": "536870912\n",
            },
            (2.5, 512 * MEGABYTE),
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
            },
            (4.0, 2 * GIGABYTE),
            id="v1, seen from the host",
        ),
        pytest.param("", {}, (None, None), id="no control groups"),
        pytest.param("0::/\n", {"cpu.max": "\n", "memory.max": "x\n"}, (None, None), id="unreadable"),
    ],
)
def test_limits_are_the_smallest_of_every_group_upwards(
    memberships: str, files: dict[str, str], limits: tuple[float | None, int | None]
) -> None:
    """Both versions of control groups, in a container and on a host."""
    assert group_limits(memberships, files.get) == limits


@pytest.mark.parametrize(
    ("resources", "models_bytes", "count", "reason"),
    [
        (Resources(8), 0, 8, "one for each core"),
        (Resources(64, 1.5), 0, 2, "limited by the CPU limit of 1.5"),
        (Resources(64, 0.1), 0, 1, "limited by the CPU limit of 0.1"),
        (Resources(2, 4.0), 0, 2, "one for each core"),
        (
            Resources(64, None, 2 * GIGABYTE),
            100 * MEGABYTE,
            12,
            "limited by 2048 MB of memory (the models count as 2 x 100 MB, a worker as 150 MB)",
        ),
        (Resources(64, 3.0, 2 * GIGABYTE), 0, 3, "limited by the CPU limit of 3"),
        (
            Resources(4, None, GIGABYTE),
            GIGABYTE,
            1,
            "limited by 1024 MB of memory (the models count as 2 x 1024 MB, a worker as 150 MB)",
        ),
        (Resources(1, None, GIGABYTE), GIGABYTE, 1, "one for each core"),
    ],
)
def test_workers_are_the_smaller_of_cores_and_what_memory_holds(
    resources: Resources, models_bytes: int, count: int, reason: str
) -> None:
    """At least one, and the reason says which of them decided."""
    workers = default_workers(resources, models_bytes)

    assert (workers.count, workers.reason) == (count, reason)


def test_this_machine_has_cores_and_memory() -> None:
    """What is read here can be used, whatever limits there are."""
    here = available_resources()

    assert 1 <= here.cores <= here.schedulable
    assert here.memory_bytes is not None
    assert here.memory_bytes > 64 * MEGABYTE
