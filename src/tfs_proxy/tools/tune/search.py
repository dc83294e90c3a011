"""The search itself: the order in which points are tried, and the choice of the best; pure.

Coordinate descent: from the best point so far each axis is tried alone, with one short trial a value, until
a whole round brings no gain. Then pairs of axes are tried together, since settings depend on each other:
batching may only pay with more threads. The last part of the budget repeats the best few, longer each time
and fewer each time, so that a lucky short trial does not decide.
"""

import itertools
import statistics
from collections.abc import Callable, Iterator, Sequence

from tfs_proxy.tools.tune.axes import Point, Space
from tfs_proxy.tools.tune.measured import FAILED, Trial, median_score

FINAL_SHARE = 0.3
"""Part of the budget for repeats of the best points."""

FINAL_ROUNDS = ((4, 2), (3, 2), (2, 3), (2, 3))
"""Rounds, each with the number of the best to repeat, and the length in short trials."""

LONGER = 0.5
"""Extra cost of a trial that measures twice as long: the start of the stack takes the same time."""

LEAST_GAIN, MOST_NOISE = 0.03, 0.05
"""Scores are equal if they differ by less than the sum of the first and the noise, which counts up to the
second: then the point with fewer changes is better.
"""

MeasurePoint = Callable[[Point, int], Trial]
"""Measures a point on a new stack; the second argument is 1 for a short trial, n for n times as long."""

Clock = Callable[[], float]
"""Seconds since the search began."""


class Search:
    """One search; ``trials`` has all measurements so far, also if `run` is interrupted.

    ``told`` gets each trial once it is among them.
    """

    def __init__(
        self,
        space: Space,
        p99_ms: float,
        measure: MeasurePoint,
        clock: Clock,
        budget_seconds: float,
        told: Callable[[Trial], None] = lambda _trial: None,
    ) -> None:
        self._space, self._p99_ms, self._measure = space, p99_ms, measure
        self._clock, self._budget_seconds, self._told = clock, budget_seconds, told
        self._longest_seconds = 0.0
        self.trials: list[Trial] = []

    def run(self) -> None:
        """Searches until nothing is left to try, or the budget is used up."""
        deadline = self._budget_seconds * (1 - FINAL_SHARE)
        self._try(self._space.default, deadline)
        self._descend(deadline)
        while self._try_pairs(deadline):
            self._descend(deadline)
        self._repeat_the_best()

    def ranked(self) -> list[Point]:
        """All tried points, the best first; of equal ones, the one with fewer changes."""
        by_score = sorted(self._scores().items(), key=lambda item: item[1], reverse=True)
        if not by_score:
            return []
        top, factor = by_score[0][1], 1 + LEAST_GAIN + min(self._noise(), MOST_NOISE)
        same = [point for point, score in by_score if score == top or 0 < top <= score * factor]
        others = [point for point, _ in by_score if point not in same]
        return [*sorted(same, key=lambda point: len(list(self._space.chosen(point)))), *others]

    def trials_of(self, point: Point) -> list[Trial]:
        return [trial for trial in self.trials if trial.point == point]

    def _scores(self) -> dict[Point, float]:
        points = dict.fromkeys(trial.point for trial in self.trials)
        return {point: median_score(self.trials_of(point), self._p99_ms) for point in points}

    def _noise(self) -> float:
        """The usual relative error of a trial's score, from points with several trials."""
        scores = self._scores()
        repeated = [point for point in scores if len(self.trials_of(point)) > 1 and scores[point] > 0]
        return statistics.fmean(
            [
                abs(trial.score(self._p99_ms) / scores[point] - 1)
                for point in repeated
                for trial in self.trials_of(point)
                if trial.score(self._p99_ms) > FAILED
            ]
            or [0.0]
        )

    def _best(self) -> Point:
        """The point with the highest score: during the search small gains count, too."""
        scores = self._scores()
        return max(scores, key=lambda point: scores[point])

    def _try(self, point: Point, deadline: float, times: int = 1) -> bool:
        """Measures a point unless it would end after ``deadline``; True if it was measured."""
        estimate = self._longest_seconds * (1 + LONGER * (times - 1))
        began = self._clock()
        if self.trials and began + estimate > deadline:
            return False
        trial = self._measure(self._space.canonical(point), times)
        self.trials.append(trial)
        self._told(trial)
        if times == 1:
            self._longest_seconds = max(self._longest_seconds, self._clock() - began)
        return True

    def _try_new(self, points: Iterator[Point] | Sequence[Point], deadline: float) -> bool:
        """Measures new points; True if the best point has changed."""
        before = self._best()
        for point in points:
            known = {trial.point for trial in self.trials}
            if self._space.canonical(point) not in known and not self._try(point, deadline):
                break
        return self._best() != before

    def _descend(self, deadline: float) -> None:
        """Tries each axis alone from the best point, until a round of all axes changes nothing."""
        changed = True
        while changed:
            changed = False
            for place in range(len(self._space.axes)):
                changed |= self._try_new(self._along(self._best(), (place,)), deadline)

    def _try_pairs(self, deadline: float) -> bool:
        """Tries two axes together from the best point; True if the best point has changed.

        Pairs of options that did best alone come first, since the time may end.
        """
        pairs = itertools.combinations(range(len(self._space.axes)), 2)
        best = self._best()
        points = [point for pair in pairs for point in self._along(best, pair)]
        alone = self._scores()
        points.sort(key=lambda point: self._promise(best, point, alone), reverse=True)
        for point in dict.fromkeys(map(self._space.canonical, points)):
            if self._try_new([point], deadline):
                return True
        return False

    def _promise(self, best: Point, point: Point, scores: dict[Point, float]) -> float:
        """The sum of the scores of the single changes of ``point``."""
        changed = [place for place, chosen in enumerate(point) if chosen != best[place]]
        single = (_with(best, {place: point[place]}) for place in changed)
        return sum(scores.get(self._space.canonical(each), FAILED) for each in single) / max(1, len(changed))

    def _along(self, point: Point, places: Sequence[int]) -> list[Point]:
        """All points that differ from ``point`` on every axis at ``places``."""
        counts = [range(len(self._space.axes[place].options)) for place in places]
        values = (dict(zip(places, chosen, strict=True)) for chosen in itertools.product(*counts))
        moved = (each for each in values if all(point[place] != number for place, number in each.items()))
        return [_with(point, each) for each in moved]

    def _repeat_the_best(self) -> None:
        """Repeats ever fewer of the best points in turns, and the default once; not those that failed."""
        for round_number, (count, times) in enumerate(FINAL_ROUNDS):
            scores = self._scores()
            finalists = [point for point in self.ranked() if scores[point] > FAILED][:count]
            if not round_number and self._space.default not in finalists:
                finalists.append(self._space.default)
            for point in finalists:
                if not self._try(point, self._budget_seconds, times):
                    return


def _with(point: Point, changes: dict[int, int]) -> Point:
    return tuple(changes.get(place, chosen) for place, chosen in enumerate(point))
