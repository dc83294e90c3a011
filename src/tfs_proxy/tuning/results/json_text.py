"""Findings as JSON, for machines."""

import json

from msgspec.structs import asdict

from tfs_proxy.tuning.results.findings import Finding, Findings


def json_text(findings: Findings) -> str:
    """One object: the target, the best environment, and each point with all its loads."""
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
