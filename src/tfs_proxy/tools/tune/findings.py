"""The results of a search as values: the points from best to worst, with their loads."""

import json
from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import asdict

from tfs_proxy.tools.tune.axes import Point, Space
from tfs_proxy.tools.tune.measured import LoadLevel, Trial, median_score
from tfs_proxy.tools.tune.search import Search


class Finding(Struct, frozen=True):
    """One point with all its trials; ``score`` is their median, a rate if it is above 0."""

    point: Point
    label: str
    environment: Mapping[str, str]
    trials: Sequence[Trial]
    score: float
    is_default: bool

    def level(self, p99_ms: float) -> LoadLevel | None:
        """The load of the score, or the one nearest to it; None if nothing was measured."""
        levels = [each for trial in self.trials for each in trial.levels]
        good = [each for each in levels if each.holds(p99_ms)] or levels
        return min(good, key=lambda each: abs(each.rate - self.score), default=None)

    @property
    def failure(self) -> str:
        return "; ".join(filter(None, (trial.failure for trial in self.trials)))


class Findings(Struct, frozen=True):
    """The points, the best first; ``fixed`` are the variables that the user has set."""

    ranked: tuple[Finding, ...]
    fixed: Mapping[str, str]
    p99_ms: float
    seconds: float

    @property
    def best(self) -> Finding | None:
        """The best point that meets the target; None if there is none."""
        return next((finding for finding in self.ranked[:1] if finding.score > 0), None)

    @property
    def default(self) -> Finding | None:
        return next((finding for finding in self.ranked if finding.is_default), None)


def findings_of(search: Search, space: Space, p99_ms: float, seconds: float) -> Findings:
    """The results of ``search`` so far, after so many ``seconds``."""
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


def result_lines(findings: Findings) -> Iterator[str]:
    """The lines for standard output: an env file with the table as a comment."""
    yield from (f"# {line}" for line in table_lines(findings))
    yield "#"
    yield from environment_lines(findings)


def environment_lines(findings: Findings) -> Iterator[str]:
    """The lines for `docker run --env-file`, and the same as SageMaker's Environment."""
    best = findings.best
    if best is None:
        yield f"# No settings that were tried keep p99 within {findings.p99_ms:g} ms."
        return
    gain = _gain(best, findings.default)
    yield f"# {best.score:.0f} requests/s with p99 within {findings.p99_ms:g} ms{gain}"
    if not best.environment:
        yield "# The defaults are the best that was found: no variable is needed."
        return
    yield from (f"{name}={value}" for name, value in best.environment.items())
    yield f'# SageMaker: "Environment": {json.dumps(dict(best.environment))}'


def table_lines(findings: Findings) -> Iterator[str]:
    rows = [("req/s", "p99 ms", "connections", "trials", "settings")]
    rows += [_row(finding, findings.p99_ms) for finding in findings.ranked]
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    for row in rows:
        numbers = (cell.rjust(width) for cell, width in zip(row, widths, strict=False))
        yield "  ".join((*numbers, row[4]))
    for name, value in findings.fixed.items():
        yield f"{name}={value} is set, so it was not searched."


def _row(finding: Finding, p99_ms: float) -> tuple[str, str, str, str, str]:
    level = finding.level(p99_ms)
    rate = f"{finding.score:.0f}" if finding.score > 0 else "-"
    p99, connections = (f"{level.p99_ms:.1f}", f"{level.connections}") if level else ("-", "-")
    failure = f" ({finding.failure})" if finding.failure else ""
    return rate, p99, connections, f"{len(finding.trials)}", finding.label + failure


def _gain(best: Finding, default: Finding | None) -> str:
    if default is None or best.is_default:
        return ""
    if default.score <= 0:
        return "; the defaults do not keep it"
    return f", {best.score / default.score:.2f} times the defaults' {default.score:.0f}"


def json_text(findings: Findings) -> str:
    """A JSON object: the target, the best environment, and each point with all its loads."""
    best = findings.best
    return json.dumps(
        {
            "p99_ms": findings.p99_ms,
            "seconds": round(findings.seconds, 1),
            "environment": dict(best.environment) if best else None,
            "requests_per_second": best.score if best else None,
            "fixed": dict(findings.fixed),
            "points": [_point(finding) for finding in findings.ranked],
        },
        indent=1,
    )


def _point(finding: Finding) -> dict[str, object]:
    return {
        "settings": finding.label,
        "environment": dict(finding.environment),
        "requests_per_second": finding.score if finding.score > 0 else None,
        "failure": finding.failure or None,
        "trials": [[asdict(level) for level in trial.levels] for trial in finding.trials],
    }
