"""Whether a model fits: estimates from earlier loads, the container's memory, and the sentence of a 507."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
MARGIN = 0.1


def stacks(*megabytes: tuple[int, int]) -> list[StackMemory]:
    """Stacks by the size of their model and their memory, in MB."""
    return [StackMemory(disk * MEGABYTE, memory * MEGABYTE) for disk, memory in megabytes]


def occupied(
    free_bytes: int, measured: list[StackMemory] | None = None, loading: list[StackMemory] | None = None
) -> Occupancy:
    """A container of 10 GB with this much free."""
    return Occupancy(measured or [], loading or [], MemoryLeft(10 * GIGABYTE, free_bytes))


def test_a_refusal_says_what_is_needed_what_is_free_and_what_to_change() -> None:
    refused = refusal(
        "team--a", 300 * MEGABYTE, occupied(1500 * MEGABYTE, loading=stacks((100, 132))), MARGIN
    )

    assert refused is not None
    assert str(refused) == (
        "model team--a needs about 632 MB (300 MB on disk) of memory, and 1500 MB of 10240 MB are free "
        "(100 MB for loads under way), of which TFS_PROXY_MULTI_MODEL_MEMORY_MARGIN=0.1 keeps 1024 MB free: "
        "256 MB too little. Unload a model, give the container more memory, or lower the margin."
    )
    assert refused.missing_bytes == 256 * MEGABYTE


def test_what_models_of_that_size_took_is_the_estimate() -> None:
    """The base and the factor come from earlier loads as soon as there are any."""
    measured = stacks((100, 350), (200, 500), (400, 800))
    estimate = estimate_from(measured)

    assert estimate.factor == pytest.approx(1.5)
    assert estimate.base_bytes == pytest.approx(200 * MEGABYTE)
    assert estimate.for_model(1000 * MEGABYTE) == pytest.approx(1700 * MEGABYTE)


def test_models_of_one_size_tell_only_the_base() -> None:
    """Two small models whose scripts differ say nothing about what a large one takes."""
    estimate = estimate_from(stacks((1, 180), (2, 280), (3, 210)))

    assert estimate.factor == MODEL_FACTOR
    assert estimate.base_bytes == pytest.approx(204 * MEGABYTE)


def test_one_hungry_script_does_not_lock_the_others_out() -> None:
    """An outlier changes neither base nor factor by much."""
    usual = stacks(*((size, 200 + 2 * size) for size in range(0, 500, 50)))
    estimate = estimate_from([*usual, *stacks((60, 9000))])

    assert estimate.for_model(100 * MEGABYTE) == pytest.approx(400 * MEGABYTE, rel=0.05)


def test_loads_under_way_keep_what_they_were_promised() -> None:
    free_bytes = GIGABYTE + 2 * (BASE_BYTES + MODEL_FACTOR * 100 * MEGABYTE)
    promised, taken = stacks((100, 0), (100, 5000))

    assert refusal("b", 100 * MEGABYTE, occupied(free_bytes, loading=[promised, taken]), MARGIN) is None
    assert refusal("b", 100 * MEGABYTE, occupied(free_bytes, loading=[promised, promised]), MARGIN)


def test_the_kind_that_takes_most_counts_as_long_as_the_kind_is_unknown() -> None:
    """Many models without workers do not let one with a hungry script in."""
    plain = [StackMemory(MEGABYTE, 3 * MEGABYTE, has_workers=False)] * 9
    scripted = [StackMemory(MEGABYTE, 90 * MEGABYTE)]

    assert refusal("a", MEGABYTE, occupied(GIGABYTE + 89 * MEGABYTE, [*plain, *scripted]), MARGIN)
    assert refusal("a", MEGABYTE, occupied(GIGABYTE + 90 * MEGABYTE, [*plain, *scripted]), MARGIN) is None


def test_what_others_have_already_is_not_asked_for_again() -> None:
    memory = MemoryLeft(10 * GIGABYTE, GIGABYTE + 100 * MEGABYTE)

    assert refusal("a", MEGABYTE, Occupancy([], [], memory), MARGIN) is None
    assert refusal("a", MEGABYTE, Occupancy([], [], memory, MODEL_SERVER_BYTES), MARGIN) is not None


def test_without_a_measure_of_memory_every_model_fits() -> None:
    assert refusal("a", 10**15, Occupancy([], [], None), MARGIN) is None


SIZES = st.integers(0, 2**40)


@given(st.lists(st.builds(StackMemory, SIZES, SIZES), min_size=1, max_size=20), SIZES, SIZES)
def test_a_larger_model_never_needs_less(measured: list[StackMemory], size: int, more: int) -> None:
    estimate = estimate_from(measured)

    assert size <= estimate.for_model(size) <= estimate.for_model(size + more)


def test_the_first_model_counts_as_documented() -> None:
    needed_bytes = BASE_BYTES + MODEL_FACTOR * 100 * MEGABYTE

    assert refusal("a", 100 * MEGABYTE, occupied(GIGABYTE + needed_bytes), MARGIN) is None
    assert refusal("a", 100 * MEGABYTE, occupied(GIGABYTE + needed_bytes - 1), MARGIN) is not None
