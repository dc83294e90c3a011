"""The output of one object: its order, and that it is written whole or not at all."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.transform_doubles import MemoryTarget
from tfs_proxy.transform.files import InputObject
from tfs_proxy.transform.ordered_output import OrderedOutput
from tfs_proxy.transform.run_statistics import BadRecord, ObjectFailed, RunStatistics, Workload
from tfs_proxy.transform.transformer import Outcome

ITEM = InputObject("/in/a", "a", 100, "version 1")


class Run:
    """An `OrderedOutput` with what it is handed, and counts of its callbacks."""

    def __init__(self, target: MemoryTarget | None = None) -> None:
        self.target = target or MemoryTarget()
        self.statistics = RunStatistics(Workload(1, ITEM.size))
        self.released = self.ended = 0
        self.output = OrderedOutput(
            ITEM, self.target, "fingerprint", self.statistics, self._release, self._on_end
        )

    def start(self, count: int) -> list[int]:
        return [self.output.start_batch() for _ in range(count)]

    def _release(self) -> None:
        self.released += 1

    def _on_end(self, _output: OrderedOutput) -> None:
        self.ended += 1


def bad(record: int) -> ObjectFailed:
    return ObjectFailed(BadRecord("a", f"record {record} is bad", record, record * 10, 400))


@given(st.permutations(range(6)), st.sets(st.integers(0, 5), min_size=1))
def test_the_earliest_failure_is_reported(order: list[int], failing: set[int]) -> None:
    run = Run()
    run.start(6)
    run.output.end_input()
    for number in order:
        if number in failing:
            run.output.fail_batch(bad(number + 1))
        else:
            run.output.deliver(number, Outcome(1, b"x"), size=1)
    assert list(run.target.objects) == ["a.err"]
    assert f'"record {min(failing) + 1} is bad"'.encode() in run.target.objects["a.err"]
    assert (run.released, run.ended) == (6, 1)
    assert run.statistics.counts["failed"] == 1


@pytest.mark.parametrize("written", [0, 1])
def test_a_full_disk(written: int) -> None:
    """The object fails, its parts are removed, and every batch is released."""
    run = Run(MemoryTarget(full_after=written))
    run.start(3)
    for number in range(3):
        run.output.deliver(number, Outcome(1, b"x"), 1)
    run.output.end_input()
    assert "a.out" not in run.target.objects
    assert "a.out" in run.target.aborts
    assert (run.released, run.statistics.counts["failed"]) == (3, 1)
    assert "the disk is full" in run.statistics.failures[0].error
