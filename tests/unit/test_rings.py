"""The rings of tests: every test has one, and they take no longer than people and machines wait."""

from pathlib import Path

import pytest

from support.loading import load_script

ROOT = Path(__file__).parents[2]
FIRST = ("contract", "unit", "core")
ring = load_script("ring")


def test_the_budgets_of_rings_add_up_to_what_is_promised() -> None:
    """Ten minutes for `make test`, thirty-eight for `make test-all`, which has all but what `make release` tries."""
    seconds = {name: each["seconds"] for name, each in ring.RINGS.items()}
    assert sum(seconds[name] for name in FIRST) <= 600
    assert sum(seconds.values()) - seconds["release"] <= 2280


def test_every_test_is_below_a_folder_of_a_ring() -> None:
    """A new folder of tests that no ring names would run nowhere."""
    paths = {path for each in ring.RINGS.values() for path in each["paths"]}
    assert all((ROOT / path).exists() for path in paths)
    tests = [path.relative_to(ROOT) for path in (ROOT / "tests").rglob("test_*.py")]
    assert [test for test in tests if not paths & {str(parent) for parent in (test, *test.parents)}] == []


def test_a_ring_leaves_out_the_paths_of_another() -> None:
    """Nothing runs twice; CI shows the slowest tests."""
    words = ring.arguments("rest", ci=True)
    assert "--ignore=tests/processes/serving" in words
    assert words[-1] == "--durations=30"
    assert "--durations=30" not in ring.arguments("rest", ci=False)


@pytest.mark.parametrize(
    ("times", "ci", "warned", "too_long"),
    [(1, True, False, False), (1.5, True, True, False), (4.5, True, True, True), (4.5, False, True, False)],
)
def test_a_slow_ring_warns_and_fails_far_above_its_budget(
    times: float, ci: bool, warned: bool, too_long: bool
) -> None:
    """Machines are noisy: only CI fails, and only far beyond."""
    line, late = ring.verdict("unit", times * ring.RINGS["unit"]["seconds"], ci=ci)
    assert ("WARNING" in line, late) == (warned, too_long)
