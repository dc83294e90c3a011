"""Which machine gets which object, and what becomes of those of a machine that is lost."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfs_proxy.errors import SettingsError
from tfs_proxy.transform.engines.node import SharedStorageProbe
from tfs_proxy.transform.engines.scheduler import MAX_LOSSES, Scheduler
from tfs_proxy.transform.job import ExecutionPlan
from tfs_proxy.transform.stores.interface import InputObject
from tfs_proxy.transform.stores.local import local_object

MB = 1 << 20
EFFORT = ExecutionPlan("SingleRecord", MB, 2)


def item(name: str, size: int) -> InputObject:
    return InputObject(f"/{name}", name, size, "1")


def test_the_largest_first() -> None:
    """The longest work begins first, so that little is left to wait for at the end."""
    items = [item("a", 1), item("b", 30 * MB), item("c", 20 * MB), item("d", 20 * MB)]
    scheduler = Scheduler(items, single_request=False)
    taken = [scheduler.take(machine, EFFORT, 2) for machine in ("one", "two", "two")]
    assert [each.name for each in taken if each] == ["b", "c", "d"]


@pytest.mark.parametrize(
    ("count", "size", "whole", "held"),
    [
        (100, 1, False, 4),
        (100, 100 * MB, False, 2),
        (100, 3 * MB, False, 2),
        (100, 1, True, 4),
        (8, 1, False, 2),
        (8, 1, True, 2),
        (20, 1, False, 4),
    ],
)
def test_room(count: int, size: int, whole: bool, held: int) -> None:
    """Small objects fill two requests twice, large ones and the last ones wait one behind the other."""
    scheduler = Scheduler([item(str(place), size) for place in range(count)], single_request=whole)
    assert len(list(iter(lambda: scheduler.take("one", EFFORT, 2), None))) == held


@given(st.lists(st.integers(0, 5 * MB), max_size=30), st.lists(st.sampled_from(["end", "lose"]), max_size=60))
def test_every_object_is_finished_once(sizes: list[int], events: list[str]) -> None:
    """Whatever machines are lost, no object is forgotten, and none is held by two."""
    items = {str(place): item(str(place), size) for place, size in enumerate(sizes)}
    scheduler, held, over = (
        Scheduler(items.values(), single_request=False),
        dict[str, InputObject](),
        list[str](),
    )
    for event in [*events, *["end"] * len(items) * MAX_LOSSES]:
        while (one := scheduler.take("machine", EFFORT, 1)) is not None:
            assert one.name not in held
            held[one.name] = one
        if event == "lose":
            over += [each.name for each in scheduler.lose("machine")]
            held.clear()
        elif held:
            name, one = held.popitem()
            scheduler.finish("machine", one)
            over.append(name)
    assert sorted(over) == sorted(items)
    assert scheduler.is_finished


def test_an_object_that_costs_machines() -> None:
    """After three of them it is given up."""
    scheduler = Scheduler([item("a", 1)], single_request=True)
    for machine in ("one", "two"):
        assert scheduler.take(machine, EFFORT, 1)
        assert scheduler.lose(machine) == []
    assert scheduler.take("three", EFFORT, 1)
    assert [each.name for each in scheduler.lose("three")] == ["a"]
    assert scheduler.is_finished


def test_a_machine_must_see_the_folders(tmp_path: Path) -> None:
    """Input of the same size and time, and the sign in the output folder."""
    file, sign = tmp_path / "a", tmp_path / "sign"
    file.write_text("a")
    seen = local_object(file, "a")
    with pytest.raises(SettingsError, match="The output"):
        SharedStorageProbe(seen, sign).check()
    sign.touch()
    SharedStorageProbe(seen, sign).check()
    os.utime(file, (1, 1))
    with pytest.raises(SettingsError, match=r"The input .*/a is not to be seen there: give s3://"):
        SharedStorageProbe(seen, sign).check()
    SharedStorageProbe(InputObject("s3://bucket/a", "a", 1, "1"), None).check()
