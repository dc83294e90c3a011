"""GPUs for model servers, on machines with 0 to 8 of them, MIG on and off."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.nvidia_smi import (
    A10G,
    DIVIDED,
    NO_DEVICES,
    NO_DRIVER,
    T4,
    Card,
    gpu_uuid,
    listing,
    slice_uuid,
)
from tfs_proxy.run import gpus
from tfs_proxy.run.gpus import devices, spread, visible_devices

MARGIN = 0.2


@pytest.mark.parametrize("listed", ["", NO_DRIVER, NO_DEVICES])
def test_without_a_gpu_there_is_nothing_to_place(listed: str) -> None:
    """No program, no driver, or no device: the model server runs as it would alone."""
    assert devices(listed) == ()
    assert spread(2, devices(listed), MARGIN) == ()


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        (None, [gpu_uuid(0), slice_uuid(1, 0), slice_uuid(1, 1), slice_uuid(1, 2), gpu_uuid(2)]),
        ("2,0", ["2", "0"]),
        (f"{slice_uuid(1, 2)}, 0", [slice_uuid(1, 2), "0"]),
        ("0,-1,2", ["0"]),
        ("", []),
        ("none", []),
    ],
)
def test_only_visible_devices_are_used(
    value: str | None, wanted: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each slice is a device, and a divided GPU is not; the variable has its own names for those it allows."""
    environ = {} if value is None else {"CUDA_VISIBLE_DEVICES": value}
    monkeypatch.setattr(gpus, "nvidia_smi", lambda _: listing([T4, DIVIDED, A10G]))

    assert list(visible_devices(environ)) == wanted


@given(st.integers(1, 20), st.lists(st.sampled_from([T4, DIVIDED]), min_size=1, max_size=8))
def test_no_device_has_two_more_than_another(servers: int, cards: list[Card]) -> None:
    placements = spread(servers, devices(listing(cards)), MARGIN)
    counts = Counter(placement.device for placement in placements)

    assert len(placements) == servers
    assert max(counts.values()) - min(counts.values()) <= 1
    for device in counts:
        shares = [placement.memory_share for placement in placements if placement.device == device]
        assert shares == pytest.approx([(1 - MARGIN) / len(shares)] * len(shares))


def test_slices_of_older_drivers_have_their_own_form_of_name() -> None:
    old = f"MIG-{gpu_uuid(0)}/7/0"

    assert devices(listing([DIVIDED]).replace(slice_uuid(0, 0), old))[0] == old
