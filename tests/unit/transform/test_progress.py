"""The progress line of a transform run."""

from support.clock import Clock
from tfs_proxy.transform.run_statistics import RunStatistics, Workload, line


def statistics_after(seconds: float, workload: Workload, **counts: int) -> RunStatistics:
    """The statistics of a run that began ``seconds`` ago."""
    clock = Clock(100.0)
    statistics = RunStatistics(workload, clock)
    clock.now += seconds
    statistics.add(**counts)
    return statistics


def test_a_resumed_run_counts_from_where_it_was() -> None:
    """Finished objects count; rate and time to go are those of what is left."""
    statistics = statistics_after(
        10, Workload(4, 4_000_000, 2_000_000), skipped=2, objects=1, records=50, bytes=1_000_000
    )
    assert line(statistics) == "3/4 objects, 0 failed, 50 records, 5.0 records/s, 100.0 kB/s, 0:00:10 to go"
    assert line(statistics_after(10, Workload(2, 10_001), objects=1, bytes=99)).endswith(", ? to go")


def test_objects_and_failures_come_first() -> None:
    """So they are seen at any width of a terminal."""
    workload = Workload(100_000, 10**12)
    statistics = statistics_after(
        3600, workload, objects=98_000, failed=1234, bad_records=56_789, records=10**9, bytes=10**11
    )
    assert line(statistics)[:40].startswith("99234/100000 objects, 1234 failed")
