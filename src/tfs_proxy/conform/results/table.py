"""Results -> lines for a terminal: each check as it ends, then the sum."""

import textwrap
from collections import Counter
from collections.abc import Iterable, Sequence

from tfs_proxy.conform.check import Check, Level
from tfs_proxy.conform.judge import CheckOutcome, CheckResult

NAME_WIDTH, WORD_WIDTH, WIDTH = 36, 7, 110
WORDS = {CheckOutcome.PASSED: "ok", CheckOutcome.NOT_RUN: "-"}
FAILED_WORDS = {Level.MUST: "FAILED", Level.SHOULD: "advice"}


def result_lines(result: CheckResult) -> list[str]:
    """The line of a check; below it, if it failed, what was expected, what came, and how to mend it."""
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
    """Counts, and what probing took for a request."""
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
    """Each check with its level and its sentence."""
    return [f"{check.level.value:{WORD_WIDTH}}{check.name:{NAME_WIDTH}} {check.sentence}" for check in checks]


def printable(text: str) -> str:
    """What a container said, on one line and without control characters."""
    return "".join(letter if letter.isprintable() else " " for letter in " ".join(text.split()))


def _told(what: str, text: str) -> list[str]:
    if not text:
        return []
    indent = " " * (WORD_WIDTH + 2)
    return textwrap.wrap(
        f"{what}: {printable(text)}", WIDTH, initial_indent=indent, subsequent_indent=indent + "  "
    )
