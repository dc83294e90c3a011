"""What a search has found, as values: the points from the best to the worst, and what each can do."""

from collections.abc import Mapping, Sequence

from msgspec import Struct

from tfs_proxy.tuning.axes import Point, Space
from tfs_proxy.tuning.measured import LoadLevel, Trial, median_score
from tfs_proxy.tuning.search import Search


class Finding(Struct, frozen=True):
    """One point: its settings, and all its trials; ``score`` is their median, a rate if it is above 0."""

    point: Point
    label: str
    environment: Mapping[str, str]
    trials: Sequence[Trial]
    score: float
    is_default: bool

    def level(self, p99_ms: float) -> LoadLevel | None:
        """The load that the score comes from, or the nearest to it; None if nothing was measured."""
        levels = [each for trial in self.trials for each in trial.levels]
        good = [each for each in levels if each.holds(p99_ms)] or levels
        return min(good, key=lambda each: abs(each.rate - self.score), default=None)

    @property
    def failure(self) -> str:
        """What went wrong, "" if nothing did."""
        return "; ".join(filter(None, (trial.failure for trial in self.trials)))


class Findings(Struct, frozen=True):
    """The points, the best first; ``fixed`` are the variables that the user has set."""

    ranked: tuple[Finding, ...]
    fixed: Mapping[str, str]
    p99_ms: float
    seconds: float

    @property
    def best(self) -> Finding | None:
        """The best point that holds the target, None if there is none."""
        return next((finding for finding in self.ranked[:1] if finding.score > 0), None)

    @property
    def default(self) -> Finding | None:
        """What the stack does without being told."""
        return next((finding for finding in self.ranked if finding.is_default), None)


def findings_of(search: Search, space: Space, p99_ms: float, seconds: float) -> Findings:
    """What ``search`` has found so far, after so many ``seconds``."""
    ranked = tuple(
        Finding(
            point=point,
            label=space.label(point),
            environment=space.environment(point),
            trials=tuple(search.trials_of(point)),
            score=median_score(search.trials_of(point), p99_ms),
            is_default=point == space.default,
        )
        for point in search.ranked()
    )
    return Findings(ranked, space.fixed, p99_ms, seconds)
