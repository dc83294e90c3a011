"""GPUs for model servers, on machines with 0 to 8 of them, MIG on and off."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.nvidia_smi import (
    A10G,
    A100,
    H100,
    NO_DEVICES,
    NO_DEVICES_XML,
    NO_DRIVER,
    T4,
    Card,
    Slice,
    description,
    found,
    gpu_uuid,
    listing,
    slice_uuid,
)
from tfs_proxy.run.gpus import Placement, devices, spread, visible
from tfs_proxy.values.memory import MEGABYTE

MARGIN = 0.2
DIVIDED = replace(A100, slices=[Slice("3g.20gb", 19968), Slice("2g.10gb", 9856), Slice("1g.5gb", 4864)])
SEVENTHS = replace(H100, slices=[Slice("1g.10gb", 9856)] * 7)


@pytest.mark.parametrize(
    ("listed", "described"),
    [("", ""), (NO_DRIVER, NO_DRIVER), (NO_DEVICES, NO_DEVICES), (NO_DEVICES, NO_DEVICES_XML)],
)
def test_without_a_gpu_there_is_nothing_to_place(listed: str, described: str) -> None:
    """No program, no driver, or no device: the model server runs as it would alone."""
    assert devices(listed, described) == ()


def test_each_slice_is_a_device_and_a_divided_gpu_is_not() -> None:
    machine = found(T4, DIVIDED, replace(A100, slices=[]), A100)

    assert [device.uuid for device in machine] == [
        gpu_uuid(0),
        *(slice_uuid(1, index) for index in range(3)),
        gpu_uuid(3),
    ]
    assert machine[2].free_bytes == (9856 - 25) * MEGABYTE
    assert machine[2].gpu_uuid == gpu_uuid(1)
    assert len(found(*[SEVENTHS] * 8)) == 56


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        (None, [gpu_uuid(0), slice_uuid(1, 0), slice_uuid(1, 1), slice_uuid(1, 2), gpu_uuid(2)]),
        ("2,0", [gpu_uuid(2), gpu_uuid(0)]),
        (gpu_uuid(2), [gpu_uuid(2)]),
        (f"{slice_uuid(1, 2)}, 0", [slice_uuid(1, 2), gpu_uuid(0)]),
        ("1", [slice_uuid(1, 0), slice_uuid(1, 1), slice_uuid(1, 2)]),
        ("0,0", [gpu_uuid(0)]),
        ("0,7,2", [gpu_uuid(0)]),
        ("", []),
        ("-1", []),
    ],
)
def test_only_visible_devices_are_used(value: str | None, wanted: list[str]) -> None:
    environ = {} if value is None else {"CUDA_VISIBLE_DEVICES": value}

    assert [device.uuid for device in visible(found(T4, DIVIDED, A100), environ)] == wanted


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
        shares = [placement.memory_share for placement in placements if placement.uuid == uuid]
        assert sum(shares) == pytest.approx(1 - MARGIN)


def test_slices_of_older_drivers_have_their_own_form_of_name() -> None:
    old = f"MIG-{gpu_uuid(0)}/7/0"
    cards = [replace(A100, slices=[Slice("3g.20gb", 19968)])]

    assert devices(listing(cards).replace(slice_uuid(0, 0), old), description(cards))[0].uuid == old


def test_a_device_whose_memory_is_not_told_is_left_out() -> None:
    cards = [T4, A10G]
    hidden = description(cards).replace("15357 MiB", "N/A")

    assert [device.uuid for device in devices(listing(cards), hidden)] == [gpu_uuid(1)]
