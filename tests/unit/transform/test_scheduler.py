"""Which node gets which object, and what happens to the objects of a node that is lost."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfs_proxy.transform.files import InputObject, local_object
from tfs_proxy.transform.job import ExecutionPlan
from tfs_proxy.transform.node import MAX_LOSSES, Scheduler, SharedStorageProbe
from tfs_proxy.values.errors import SettingsError

MB = 1 << 20
PLAN = ExecutionPlan("SingleRecord", MB, 2)


def item(name: str, size: int) -> InputObject:
    return InputObject(f"/{name}", name, size, "1")


@given(st.lists(st.integers(0, 5 * MB), max_size=30), st.lists(st.sampled_from(["end", "lose"]), max_size=60))
def test_every_object_is_finished_once(sizes: list[int], events: list[str]) -> None:
    items = {str(index): item(str(index), size) for index, size in enumerate(sizes)}
    scheduler = Scheduler(items.values(), single_request=False)
    held, finished = dict[str, InputObject](), list[str]()
    for event in [*events, *["end"] * len(items) * MAX_LOSSES]:
        while (taken := scheduler.take("node", PLAN, 1)) is not None:
            assert taken.name not in held
            held[taken.name] = taken
        if event == "lose":
            finished += [lost.name for lost in scheduler.lose("node")]
            held.clear()
        elif held:
            name, taken = held.popitem()
            scheduler.finish("node", taken)
            finished.append(name)
    assert sorted(finished) == sorted(items)
    assert scheduler.is_finished


def test_an_object_that_costs_nodes() -> None:
    scheduler = Scheduler([item("a", 1)], single_request=True)
    for node in ("one", "two"):
        assert scheduler.take(node, PLAN, 1)
        assert scheduler.lose(node) == []
    assert scheduler.take("three", PLAN, 1)
    assert [lost.name for lost in scheduler.lose("three")] == ["a"]
    assert scheduler.is_finished


def test_a_node_must_see_the_folders(tmp_path: Path) -> None:
    """Input of the same size and time, and the marker in the output folder."""
    file, marker = tmp_path / "a", tmp_path / "marker"
    file.write_text("a")
    seen = local_object(file, "a")
    with pytest.raises(SettingsError, match="does not see the output"):
        SharedStorageProbe(seen, marker).check()
    marker.touch()
    SharedStorageProbe(seen, marker).check()
    os.utime(file, (1, 1))
    with pytest.raises(SettingsError, match=r"does not see the input .*/a: give s3://"):
        SharedStorageProbe(seen, marker).check()
    SharedStorageProbe(InputObject("s3://bucket/a", "a", 1, "1"), None).check()
