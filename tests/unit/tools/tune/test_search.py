"""The search finds settings within 10 % of the best, on surfaces whose settings act on each other."""

import itertools
import random
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfs_proxy.tools.tune.axes import Axis, Option, Point, Space
from tfs_proxy.tools.tune.measured import LoadLevel, Trial
from tfs_proxy.tools.tune.search import Search

TRIAL_SECONDS = 8.0
P99_MS = 50.0
Surface = Callable[[Point], float]


class Machine:
    """Measures in virtual time: a trial takes `TRIAL_SECONDS`, and longer ones have less noise."""

    def __init__(self, surface: Surface, noise: float = 0.0, seed: int = 0) -> None:
        self.seconds = 0.0
        self.measured: list[Point] = []
        self._surface, self._noise, self._random = surface, noise, random.Random(seed)

    def __call__(self, point: Point, times: int) -> Trial:
        self.seconds += TRIAL_SECONDS + 2 * (times - 1)
        self.measured.append(point)
        rate = self._surface(point) * (1 + self._random.gauss(0, self._noise / times**0.5))
        if rate <= 0:
            return Trial(point, (LoadLevel(1, 0, 0, 0, {"status 503": 3}),))
        return Trial(point, (LoadLevel(8, rate, 1, 2),))


def axis(name: str, options: int, needs: str | None = None) -> Axis:
    return Axis(name, tuple(Option(f"{name} {n}", {name.upper(): f"{n}"}) for n in range(options)), needs)


def space(*counts: int) -> Space:
    return Space(tuple(axis(f"axis{n}", count) for n, count in enumerate(counts)))


def points_of(searched: Space) -> set[Point]:
    ranges = [range(len(each.options)) for each in searched.axes]
    return {searched.canonical(point) for point in itertools.product(*ranges)}


def searched(space: Space, machine: Machine, budget: float = 300) -> Search:
    search = Search(space, P99_MS, machine, lambda: machine.seconds, budget)
    search.run()
    return search


GRID = (3, 3, 2, 2)
"""36 points."""

FACTORS = st.floats(0.6, 1.6)


@st.composite
def surfaces(draw: st.DrawFn) -> Surface:
    """Each option has a factor of its own, and any two options of two of the axes another one together."""
    alone = [[1.0, *(draw(FACTORS) for _ in range(count - 1))] for count in GRID]
    one, other = draw(st.sampled_from(list(itertools.combinations(range(len(GRID)), 2))))
    together = {(a, b): draw(st.floats(0.5, 2.0)) for a in range(1, GRID[one]) for b in range(1, GRID[other])}

    def rate(point: Point) -> float:
        product = 1000.0 * together.get((point[one], point[other]), 1.0)
        for factors, chosen in zip(alone, point, strict=True):
            product *= factors[chosen]
        return product

    return rate


@given(surfaces())
def test_it_comes_near_the_best_of_a_grid(surface: Surface) -> None:
    """Two axes that interact in any way do not keep the search from what a grid of 36 points has."""
    best = max(map(surface, points_of(space(*GRID))))
    machine = Machine(surface)

    found = searched(space(*GRID), machine).ranked()[0]

    assert surface(found) >= 0.9 * best
    assert machine.seconds <= 300


def test_an_axis_without_effect_is_not_measured() -> None:
    searched_space = Space((axis("batching", 2), axis("size", 3, "batching")))
    machine = Machine(lambda point: 100.0 if point[0] else 200.0)

    searched(searched_space, machine)

    assert (0, 1) not in machine.measured
    assert (0, 2) not in machine.measured


def test_failing_settings_are_never_the_best() -> None:
    machine = Machine(lambda point: 0.0 if point[0] else 10.0)

    search = searched(space(3), machine)

    assert search.ranked()[0] == (0,)
    assert "503" in search.trials_of((1,))[0].failure


def test_of_the_same_rates_the_fewest_changes_win() -> None:
    machine = Machine(lambda point: 1000.0 + 5 * sum(point))

    assert searched(space(3, 3), machine).ranked()[0] == (0, 0)


def test_a_gain_within_the_noise_is_no_gain() -> None:
    """If trials of one point differ by more than two points do, the defaults stay."""

    class Restless(Machine):
        def __call__(self, point: Point, times: int) -> Trial:
            self.measured.append(point)
            self.seconds += TRIAL_SECONDS
            lull = 1.1 if self.measured.count(point) % 2 else 0.9
            return Trial(point, (LoadLevel(8, lull * (1050.0 if point[0] else 1000.0), 1, 2),))

    assert searched(space(2), Restless(lambda _point: 0.0), 600).ranked()[0] == (0,)


def test_the_best_is_repeated_and_a_lucky_trial_does_not_win() -> None:
    class Lucky(Machine):
        def __call__(self, point: Point, times: int) -> Trial:
            trial = super().__call__(point, times)
            first = self.measured.count(point) == 1
            return Trial(point, (LoadLevel(8, 1500.0, 1, 2),)) if point == (1, 0) and first else trial

    machine = Lucky(lambda point: 1200.0 if point == (0, 1) else 1000.0)

    assert searched(space(2, 2), machine, 600).ranked()[0] == (0, 1)


@pytest.mark.parametrize("budget", [1.0, 30.0, 100.0])
def test_the_budget_is_kept(budget: float) -> None:
    machine = Machine(lambda point: 1.0 + sum(point))

    search = searched(space(3, 3, 3), machine, budget)

    assert machine.seconds <= max(budget, TRIAL_SECONDS)
    assert search.ranked()


def test_what_is_known_survives_an_interruption() -> None:
    """After Ctrl-C in a trial the earlier ones are still there, and so is each that was told of."""

    class Interrupted(Machine):
        def __call__(self, point: Point, times: int) -> Trial:
            if len(self.measured) == 3:
                raise KeyboardInterrupt
            return super().__call__(point, times)

    machine = Interrupted(lambda point: 1.0 + sum(point))
    known: list[int] = []
    search = Search(
        space(3, 3),
        P99_MS,
        machine,
        lambda: machine.seconds,
        300,
        lambda _trial: known.append(len(search.trials)),
    )

    with pytest.raises(KeyboardInterrupt):
        search.run()

    assert known == [1, 2, 3]
    assert len(search.trials) == 3
    assert search.ranked()[0] == max(machine.measured, key=sum)
