"""Findings as lines to read: the environment block, the table, and what to think of them."""

import json
from collections.abc import Iterator

from tfs_proxy.tuning.results.findings import Finding, Findings


def result_lines(findings: Findings) -> Iterator[str]:
    """All that standard output gets: an env file, in which the table is a comment."""
    yield from (f"# {line}" for line in table_lines(findings))
    yield "#"
    yield from environment_lines(findings)


def environment_lines(findings: Findings) -> Iterator[str]:
    """The block for `docker run --env-file`, and the same as SageMaker's Environment."""
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
    """A line for each point, the best first."""
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
    """What that is beside the defaults."""
    if default is None or best.is_default:
        return ""
    if default.score <= 0:
        return "; the defaults do not keep it"
    return f", {best.score / default.score:.2f} times the defaults' {default.score:.0f}"
