"""The results of a search: the points from best to worst with their loads, as text, JSON and a picture."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from xml.sax.saxutils import escape

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


WIDTH, HEIGHT = 760, 470
LEFT, RIGHT, TOP, BOTTOM = 70, 740, 50, 410
MOST_TICKS = 8
ROUND_NUMBERS = tuple(float(f"{digit}e{power}") for power in range(-4, 10) for digit in (1, 2, 5))
BEST, DEFAULT, OTHER, TARGET = "#2f7d4f", "#1f5fa8", "#c3c9d2", "#b3362b"


class Scale(Struct, frozen=True):
    """Converts requests per second (linear, from 0) and milliseconds (logarithmic) to pixels."""

    most_rate: float
    least_ms: float
    most_ms: float

    def x(self, rate: float) -> float:
        return LEFT + (RIGHT - LEFT) * rate / self.most_rate

    def y(self, milliseconds: float) -> float:
        low, high = math.log(self.least_ms), math.log(self.most_ms)
        share = (math.log(max(milliseconds, self.least_ms)) - low) / (high - low)
        return BOTTOM - (BOTTOM - TOP) * share


def picture(findings: Findings) -> str:
    levels = [level for finding in findings.ranked for trial in finding.trials for level in _loads(trial)]
    latencies = [level.p99_ms for level in levels] + [findings.p99_ms]
    most_rate = max((level.rate for level in levels), default=1.0)
    scale = Scale(1.05 * most_rate, 0.7 * max(0.01, min(latencies)), 1.4 * max(latencies))
    best, default = findings.best, findings.default
    shown = [finding for finding in findings.ranked if finding not in (best, default)]
    parts = [
        *_axes(scale),
        *_target(scale, findings.p99_ms),
        *(part for finding in shown for part in _curves(finding, scale, OTHER, 1)),
        *(_curves(default, scale, DEFAULT, 2) if default is not None and default is not best else ()),
        *(_curves(best, scale, BEST, 3) if best else ()),
        *_legend(best, default),
    ]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" '
        f'height="{HEIGHT}" font-family="sans-serif" font-size="12">'
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>{"".join(parts)}</svg>\n'
    )


def _loads(trial: Trial) -> list[LoadLevel]:
    return sorted((level for level in trial.levels if level.rate > 0), key=lambda level: level.connections)


def _axes(scale: Scale) -> Iterator[str]:
    yield _line(LEFT, BOTTOM, RIGHT, BOTTOM, "#555")
    yield _line(LEFT, TOP, LEFT, BOTTOM, "#555")
    step = next(number for number in ROUND_NUMBERS if number >= scale.most_rate / MOST_TICKS)
    for tick in range(math.floor(scale.most_rate / step) + 1):
        yield _text(scale.x(tick * step), BOTTOM + 18, f"{tick * step:,g}", "middle")
    for milliseconds in ROUND_NUMBERS:
        if scale.least_ms <= milliseconds <= scale.most_ms:
            yield _text(LEFT - 8, scale.y(milliseconds) + 4, f"{milliseconds:,g}", "end")
    yield _text((LEFT + RIGHT) / 2, BOTTOM + 42, "requests per second", "middle")
    yield _text(LEFT, TOP - 12, "p99 in ms", "middle")


def _target(scale: Scale, p99_ms: float) -> Iterator[str]:
    y = scale.y(p99_ms)
    yield _line(LEFT, y, RIGHT, y, TARGET, ' stroke-dasharray="6 4"')
    yield _text(RIGHT, y - 6, f"target: {p99_ms:g} ms", "end", TARGET)


def _curves(finding: Finding, scale: Scale, color: str, width: int) -> Iterator[str]:
    for trial in finding.trials:
        levels = _loads(trial)
        places = [(scale.x(level.rate), scale.y(level.p99_ms)) for level in levels]
        points = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        yield f'<polyline points="{points}" fill="none" stroke="{color}" stroke-width="{0.5 * width}"/>'
        for level, (x, y) in zip(levels, places, strict=True):
            title = (
                f"{finding.label}: {level.connections} connections, {level.rate:.0f} req/s, "
                f"p99 {level.p99_ms:.1f} ms"
            )
            place = f'cx="{x:.1f}" cy="{y:.1f}" r="{2 + width}"'
            yield f'<circle {place} fill="{color}"><title>{escape(title)}</title></circle>'


def _legend(best: Finding | None, default: Finding | None) -> Iterator[str]:
    rows = [(BEST, f"best: {best.label}")] if best else []
    if default and not (best and best.is_default):
        rows.append((DEFAULT, "defaults"))
    rows.append((OTHER, "other settings"))
    x = LEFT + 40.0
    for color, label in rows:
        yield f'<circle cx="{x:.0f}" cy="16" r="5" fill="{color}"/>'
        yield _text(x + 10, 20, label)
        x += 40 + 6.5 * len(label)


def _line(x1: float, y1: float, x2: float, y2: float, color: str, more: str = "") -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{color}"{more}/>'


def _text(x: float, y: float, text: str, anchor: str = "start", color: str = "#333") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{color}">{escape(text)}</text>'
