"""Whether a model fits: estimates from earlier loads, the container's memory, and the sentence of a 507."""

import pytest

from tfs_proxy.run.many_models.admission import (
    BASE_BYTES,
    MODEL_SERVER_BYTES,
    Occupancy,
    StackMemory,
    estimate_from,
    refusal,
)
from tfs_proxy.values.memory import MEGABYTE
from tfs_proxy.values.resources import MODEL_FACTOR, MemoryLeft

GIGABYTE = 1024 * MEGABYTE


def stacks(*megabytes: tuple[int, int]) -> list[StackMemory]:
    """Stacks by the size of their model and their memory, in MB."""
    return [StackMemory(disk * MEGABYTE, memory * MEGABYTE) for disk, memory in megabytes]


def occupied(
    free_bytes: int, measured: list[StackMemory] | None = None, loading: list[StackMemory] | None = None
) -> Occupancy:
    """A container of 10 GB with this much free."""
    return Occupancy(measured or [], loading or [], MemoryLeft(10 * GIGABYTE, free_bytes))


def test_a_refusal_says_what_is_needed_what_is_free_and_what_to_change() -> None:
    refused = refusal("team--a", 300 * MEGABYTE, occupied(1500 * MEGABYTE, loading=stacks((100, 132))))

    assert refused is not None
    assert str(refused) == (
        "model team--a needs about 632 MB (300 MB on disk) of memory, and 1500 MB of 10240 MB are free "
        "(100 MB for loads under way), of which 1024 MB stay free: 256 MB too little. "
        "Unload a model, or give the container more memory."
    )
    assert refused.missing_bytes == 256 * MEGABYTE


USUAL = tuple((size, 200 + 2 * size) for size in range(0, 500, 50))


@pytest.mark.parametrize(
    ("measured", "base_megabytes", "factor"),
    [
        (((100, 350), (200, 500), (400, 800)), 200, 1.5),
        (((1, 180), (2, 280), (3, 210)), 204, MODEL_FACTOR),
        ((*USUAL, (60, 9000)), 200, 2),
    ],
    ids=["of several sizes", "of one size", "a hungry script"],
)
def test_what_earlier_models_took_is_the_estimate(
    measured: tuple[tuple[int, int], ...], base_megabytes: int, factor: float
) -> None:
    """The base and the factor; models of one size tell only the base, and an outlier changes little."""
    base_bytes, more = estimate_from(stacks(*measured))

    assert base_bytes == pytest.approx(base_megabytes * MEGABYTE, rel=0.1)
    assert more == pytest.approx(factor, rel=0.05)


KINDS = [*[StackMemory(MEGABYTE, 3 * MEGABYTE, has_workers=False)] * 9, StackMemory(MEGABYTE, 90 * MEGABYTE)]
FIRST_BYTES = BASE_BYTES + MODEL_FACTOR * 100 * MEGABYTE


@pytest.mark.parametrize(
    ("megabytes", "occupancy", "fits"),
    [
        (100, occupied(GIGABYTE + FIRST_BYTES), True),
        (100, occupied(GIGABYTE + FIRST_BYTES - 1), False),
        (100, occupied(GIGABYTE + 2 * FIRST_BYTES, loading=stacks((100, 0), (100, 5000))), True),
        (100, occupied(GIGABYTE + 2 * FIRST_BYTES, loading=stacks((100, 0), (100, 0))), False),
        (1, occupied(GIGABYTE + 90 * MEGABYTE, KINDS), True),
        (1, occupied(GIGABYTE + 89 * MEGABYTE, KINDS), False),
        (1, occupied(GIGABYTE + 100 * MEGABYTE), True),
        (
            1,
            Occupancy([], [], MemoryLeft(10 * GIGABYTE, GIGABYTE + 100 * MEGABYTE), MODEL_SERVER_BYTES),
            False,
        ),
        (10**9, Occupancy([], [], None), True),
    ],
)
def test_a_model_fits_or_does_not(megabytes: int, occupancy: Occupancy, fits: bool) -> None:
    """The first one counts as documented; loads under way keep what they were promised; of kinds the hungriest counts.

    What others have already is not asked for again; without a measure of memory every model fits.
    """
    assert (refusal("a", megabytes * MEGABYTE, occupancy) is None) is fits
