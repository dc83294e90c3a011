"""GPUs for model servers, on machines with 0 to 8 of them, MIG on and off, and ports for many models."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import assume, given
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
from tfs_proxy.run.gpus import GpuDevice, Placement, devices, spread, visible
from tfs_proxy.run.many_models.placement import place, place_servers
from tfs_proxy.values.errors import NotEnoughResources
from tfs_proxy.values.memory import MEGABYTE

MARGIN = 0.2
SMALL = 100 * MEGABYTE
DIVIDED = replace(A100, slices=[Slice("3g.20gb", 19968), Slice("2g.10gb", 9856), Slice("1g.5gb", 4864)])
SEVENTHS = replace(H100, slices=[Slice("1g.10gb", 9856)] * 7)


def placed(
    found: Sequence[GpuDevice], models: int, bytes_on_disk: int = SMALL, most_models: int = 0
) -> list[Placement]:
    """The placements of equal models that are loaded one after the other, on GPUs that none uses yet."""
    placements: list[Placement] = []
    for index in range(models):
        placement = place(
            f"m{index}", bytes_on_disk, found, placements, margin=MARGIN, most_servers=most_models
        )
        placements.append(placement)
    return placements


@pytest.mark.parametrize(
    ("listed", "described"),
    [("", ""), (NO_DRIVER, NO_DRIVER), (NO_DEVICES, NO_DEVICES), (NO_DEVICES, NO_DEVICES_XML)],
)
def test_without_a_gpu_there_is_nothing_to_place(listed: str, described: str) -> None:
    """No program, no driver, or no device: the model server runs as it would alone."""
    assert devices(listed, described) == ()
    assert place_servers("a", SMALL, 1, devices(listed, described), [], margin=MARGIN) == ()


def test_each_slice_is_a_device_and_a_divided_gpu_is_not() -> None:
    machine = found(T4, DIVIDED, replace(A100, slices=[]), A100)

    assert [device.uuid for device in machine] == [
        gpu_uuid(0),
        *(slice_uuid(1, index) for index in range(3)),
        gpu_uuid(3),
    ]
    assert [device.total_bytes // MEGABYTE for device in machine] == [15360, 19968, 9856, 4864, 40960]
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
        ("none", []),
    ],
)
def test_only_visible_devices_are_used(value: str | None, wanted: list[str]) -> None:
    environ = {} if value is None else {"CUDA_VISIBLE_DEVICES": value}

    assert [device.uuid for device in visible(found(T4, DIVIDED, A100), environ)] == wanted


def test_the_emptiest_device_comes_first() -> None:
    busy, idle, full = replace(A10G, used=9000), replace(A10G, used=500), replace(A10G, used=23000)
    placement = place("a", SMALL, found(full, busy, idle), [], margin=MARGIN)

    assert placement.environment == {"CUDA_VISIBLE_DEVICES": gpu_uuid(2)}


@pytest.mark.parametrize("cards", [[A10G], [A10G] * 4, [H100] * 8, [DIVIDED], [SEVENTHS] * 8])
def test_models_spread_before_they_share(cards: list[Card]) -> None:
    """Equal models on equal devices: no device gets a second one before each has its first."""
    machine = found(*cards)
    most = max(device.total_bytes for device in machine)
    equal = [device for device in machine if device.total_bytes == most]
    placements = placed(equal, 2 * len(equal))

    assert Counter(placement.uuid for placement in placements) == {device.uuid: 2 for device in equal}


def test_a_known_number_of_models_shares_equally() -> None:
    """10 models on 4 GPUs: at most 3 on one, a third of four fifths each, as AWS's margin wants."""
    placements = placed(found(*[A10G] * 4), 10, most_models=10)

    assert [placement.memory_share for placement in placements] == [pytest.approx(0.8 / 3)] * 10
    assert placements[0].arguments == ("--per_process_gpu_memory_fraction=0.2667",)
    assert max(Counter(placement.uuid for placement in placements).values()) == 3


def test_a_device_for_each_model_is_not_shared() -> None:
    placements = placed(found(*[H100] * 8), 8, most_models=8)

    assert {placement.arguments for placement in placements} == {()}
    assert len({placement.uuid for placement in placements}) == 8
    with pytest.raises(NotEnoughResources):
        place("ninth", SMALL, found(*[H100] * 8), placements, margin=MARGIN, most_servers=8)


def test_a_model_that_leaves_no_margin_has_a_device_alone() -> None:
    """Nobody shares it, before or after; the margin is only for those that do."""
    machine = found(T4, T4)
    large, small = 6500 * MEGABYTE, 100 * MEGABYTE
    first = place("large", large, machine, [], margin=MARGIN)

    assert first == Placement(gpu_uuid(0), None)
    second = place("small", small, machine, [first], margin=MARGIN)
    assert second.uuid == gpu_uuid(1)
    with pytest.raises(NotEnoughResources):
        place("large-2", large, machine, [first, second], margin=MARGIN)


def test_full_gpus_are_a_507_with_a_sentence() -> None:
    machine = found(T4)
    placements = placed(machine, 4, bytes_on_disk=1024 * MEGABYTE)

    with pytest.raises(NotEnoughResources) as refused:
        place("team--a", 1024 * MEGABYTE, machine, placements, margin=MARGIN)

    assert str(refused.value) == (
        f"model team--a needs 2560 MB of a GPU's memory, and {gpu_uuid(0)}, which has most left, has 2048 MB. "
        "Unload a model, or change TFS_PROXY_MAX_LOADED_MODELS, by which models share GPUs, or "
        "SAGEMAKER_TFS_FRACTIONAL_GPU_MEM_MARGIN."
    )


CARDS = st.lists(
    st.sampled_from([T4, A10G, A100, H100, DIVIDED, SEVENTHS, replace(A100, slices=[])]),
    min_size=1,
    max_size=8,
)
SIZES = st.lists(st.integers(0, 20_000), max_size=40)


@given(CARDS, SIZES, st.sampled_from([0, 1, 3, 8, 40]))
def test_no_device_is_promised_twice(cards: list[Card], sizes: list[int], most_models: int) -> None:
    machine = found(*cards)
    assume(machine)
    placements: list[Placement] = []
    for megabytes in sizes[: most_models or None]:
        try:
            placement = place(
                "m", megabytes * MEGABYTE, machine, placements, margin=MARGIN, most_servers=most_models
            )
        except NotEnoughResources:
            continue
        placements.append(placement)

    for device in machine:
        shares = [placement.memory_share for placement in placements if placement.uuid == device.uuid]
        assert shares == [None] or sum(share or 1 for share in shares) <= 1 - MARGIN + 1e-3


def test_the_servers_of_one_model_are_placed_one_after_the_other() -> None:
    """Each on the emptiest GPU that has fewest of them; those that meet share it."""
    machine = found(T4, A10G)
    chosen = place_servers("m", SMALL, 3, machine, [], margin=MARGIN)
    limited = place_servers("m", SMALL, 3, machine, [], margin=MARGIN, most_models=2)

    assert [placement.uuid for placement in chosen] == [gpu_uuid(1), gpu_uuid(0), gpu_uuid(1)]
    assert [placement.uuid for placement in limited] == [gpu_uuid(1), gpu_uuid(0), gpu_uuid(1)]
    assert [placement.memory_share for placement in limited] == [(1 - MARGIN) / 3] * 3


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


def test_the_emptiest_gpus_come_first() -> None:
    assert spread(2, found(T4, A10G, A100), MARGIN) == (
        Placement(gpu_uuid(2), 0.8),
        Placement(gpu_uuid(1), 0.8),
    )


def test_slices_of_older_drivers_have_their_own_form_of_name() -> None:
    old = f"MIG-{gpu_uuid(0)}/7/0"
    cards = [replace(A100, slices=[Slice("3g.20gb", 19968)])]

    assert devices(listing(cards).replace(slice_uuid(0, 0), old), description(cards))[0].uuid == old


def test_a_device_whose_memory_is_not_told_is_left_out() -> None:
    cards = [T4, A10G]
    hidden = description(cards).replace("15357 MiB", "N/A")

    assert [device.uuid for device in devices(listing(cards), hidden)] == [gpu_uuid(1)]


def test_a_smaller_device_serves_if_the_emptiest_has_no_share_left() -> None:
    """A tenth of a large GPU may be more than all of a small one, but it is not the share that models get."""
    machine = found(H100, T4)
    placements = [Placement(gpu_uuid(0), 0.6)]
    placement = place("a", SMALL, machine, placements, margin=MARGIN, most_servers=4)

    assert placement == Placement(gpu_uuid(1), (1 - MARGIN) / 2)


def test_without_a_number_a_model_gets_what_its_size_asks_for() -> None:
    """Twice its size and half a gigabyte."""
    (placement,) = placed(found(T4), 1, bytes_on_disk=1024 * MEGABYTE)

    assert placement.memory_share == pytest.approx(2560 / 15360)


def test_memory_that_others_took_cannot_be_promised() -> None:
    """Another program on the GPU leaves less than a share."""
    with pytest.raises(NotEnoughResources, match="has 360 MB"):
        place("a", SMALL, found(replace(T4, used=15000)), [], margin=MARGIN)


def test_a_model_whose_servers_do_not_all_fit_is_refused() -> None:
    """None of them is started then."""
    with pytest.raises(NotEnoughResources, match="model m needs"):
        place_servers("m", 10_000 * MEGABYTE, 2, found(A10G), [], margin=MARGIN)
