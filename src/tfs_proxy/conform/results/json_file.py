"""Results -> a JSON document, for programs."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from tfs_proxy.conform.judge import CheckOutcome, CheckResult


def json_text(target: str, results: Sequence[CheckResult], probed: Sequence[str]) -> str:
    """The document: target, counts by outcome, and every check."""
    counts = Counter(result.outcome for result in results)
    document = {
        "target": target,
        "counts": {outcome.value: counts[outcome] for outcome in CheckOutcome}
        | {"musts failed": sum(result.is_failure for result in results)},
        "requests": list(probed),
        "checks": [_entry(result) for result in results],
    }
    return json.dumps(document, indent=2) + "\n"


def _entry(result: CheckResult) -> Mapping[str, Any]:
    check, violation = result.check, result.violation
    entry = {
        "name": check.name,
        "level": check.level.value,
        "outcome": result.outcome.value,
        "sentence": check.sentence,
        "source": check.source.value,
        "seconds": round(result.seconds, 3),
    }
    if result.outcome is CheckOutcome.NOT_RUN:
        return entry | {"reason": result.note}
    if violation is None:
        return entry | ({"found": result.note} if result.note else {})
    found = {
        "expected": violation.expected,
        "got": violation.got,
        "mend": violation.mend,
        "after": result.note,
    }
    return entry | {key: text for key, text in found.items() if text}
