"""Which GPU each of several model servers of the same models gets, on machines that report 0 to 8 of them."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.nvidia_smi import (
    A10G,
    A100,
    NO_DRIVER,
    T4,
    Card,
    Slice,
    found,
    gpu_uuid,
)
from tfs_proxy.run.gpus import Placement, devices, spread

MARGIN = 0.2
DIVIDED = Card(A100.name, A100.total, slices=[Slice("3g.20gb", 19968), Slice("2g.10gb", 9856)])


def test_without_a_driver_there_is_nothing_to_choose() -> None:
    """The model servers run on the CPU."""
    assert spread(2, devices(NO_DRIVER, NO_DRIVER), MARGIN) == ()


def test_those_on_one_gpu_share_its_memory() -> None:
    """Three on two: the emptiest has two of them."""
    assert spread(3, found(T4, A10G), MARGIN) == (
        Placement(gpu_uuid(1), 0.4),
        Placement(gpu_uuid(0), 0.8),
        Placement(gpu_uuid(1), 0.4),
    )


@given(st.integers(1, 20), st.lists(st.sampled_from([T4, A10G, A100, DIVIDED]), min_size=1, max_size=8))
def test_no_device_has_two_more_than_another(servers: int, cards: list[Card]) -> None:
    placements = spread(servers, found(*cards), MARGIN)
    counts = Counter(placement.uuid for placement in placements)

    assert len(placements) == servers
    assert max(counts.values()) - min(counts.values()) <= 1
    for uuid in counts:
        shares = [placement.memory_share or 0 for placement in placements if placement.uuid == uuid]
        assert sum(shares) == pytest.approx(1 - MARGIN)
