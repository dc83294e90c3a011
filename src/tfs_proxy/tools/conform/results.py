"""Results -> lines for a terminal: each check as it ends, and the totals."""

import json
import textwrap
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from tfs_proxy.tools.conform.check import Check, Level
from tfs_proxy.tools.conform.judge import CheckOutcome, CheckResult

NAME_WIDTH, WORD_WIDTH, WIDTH = 36, 7, 110
WORDS = {CheckOutcome.PASSED: "ok", CheckOutcome.NOT_RUN: "-"}
FAILED_WORDS = {Level.MUST: "FAILED", Level.SHOULD: "advice"}


def result_lines(result: CheckResult) -> list[str]:
    """The line of a check, and if it failed: what was expected, what came, and how to fix it."""
    check, violation = result.check, result.violation
    word = WORDS.get(result.outcome) or FAILED_WORDS[check.level]
    text = check.sentence if violation else printable(result.note)
    lines = [f"{word:{WORD_WIDTH}}{check.name:{NAME_WIDTH}} {text}".rstrip()]
    if violation:
        lines += _told("expected", violation.expected) + _told("got", violation.got)
        lines += _told("mend", violation.mend) + _told("after", result.note)
        lines += _told("source", f"SageMaker's {check.level.value}: {check.source.value}")
    return lines


def summary_lines(results: Sequence[CheckResult], probed: Iterable[str]) -> list[str]:
    """Counts, and the requests that were found by probing."""
    outcomes = Counter(result.outcome for result in results)
    failed = [result for result in results if result.outcome is CheckOutcome.FAILED]
    musts = [result.check.name for result in failed if result.is_failure]
    advice = len(failed) - len(musts)
    lines = ["", *probed]
    lines.append(
        f"{len(results)} checks: {outcomes[CheckOutcome.PASSED]} passed, {len(musts)} failed, "
        f"{advice} {'piece' if advice == 1 else 'pieces'} of advice, {outcomes[CheckOutcome.NOT_RUN]} not run"
    )
    return lines + ([f"Failed: {', '.join(musts)}"] if musts else [])


def list_lines(checks: Iterable[Check]) -> list[str]:
    return [f"{check.level.value:{WORD_WIDTH}}{check.name:{NAME_WIDTH}} {check.sentence}" for check in checks]


def printable(text: str) -> str:
    """The container's text on one line, without control characters."""
    return "".join(letter if letter.isprintable() else " " for letter in " ".join(text.split()))


def _told(what: str, text: str) -> list[str]:
    if not text:
        return []
    indent = " " * (WORD_WIDTH + 2)
    return textwrap.wrap(
        f"{what}: {printable(text)}", WIDTH, initial_indent=indent, subsequent_indent=indent + "  "
    )


def junit_text(target: str, results: Sequence[CheckResult]) -> str:
    seconds = sum(result.seconds for result in results)
    suite = Element(
        "testsuite",
        name=printable(f"tfs-proxy conform {target}"),
        tests=str(len(results)),
        failures=str(sum(result.is_failure for result in results)),
        errors="0",
        skipped=str(sum(result.outcome is CheckOutcome.NOT_RUN for result in results)),
        time=f"{seconds:.3f}",
    )
    for result in results:
        _add_case(suite, result)
    suites = Element("testsuites")
    suites.append(suite)
    indent(suites)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + tostring(suites, encoding="unicode") + "\n"


def _add_case(suite: Element, result: CheckResult) -> None:
    check = result.check
    case = SubElement(
        suite,
        "testcase",
        classname=f"conform.{check.group}",
        name=check.name.partition("/")[2],
        time=f"{result.seconds:.3f}",
    )
    text = "\n".join(map(printable, result_lines(result)))
    if result.outcome is CheckOutcome.NOT_RUN:
        SubElement(case, "skipped", message=printable(result.note))
    elif result.is_failure:
        SubElement(case, "failure", message=printable(str(result.violation))).text = text
    else:
        SubElement(case, "system-out").text = text


def json_text(target: str, results: Sequence[CheckResult], probed: Sequence[str]) -> str:
    """A JSON document: target, counts by outcome, and every check."""
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
