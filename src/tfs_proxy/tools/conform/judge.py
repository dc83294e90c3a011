"""Runs one check after the other, restarts what they need, and shows the results as text, XML and JSON."""

import json
import textwrap
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from typing import Any
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from msgspec import Struct

from tfs_proxy.tools.conform.check import Check, Level, NotRun, Occasion, Violation
from tfs_proxy.tools.conform.judging import Judging
from tfs_proxy.tools.conform.raw_http import NoReply
from tfs_proxy.tools.conform.target import CannotStart, StartFailed, log_end

MOST_RESTARTS = 5


class CheckOutcome(Enum):
    PASSED = "passed"
    FAILED = "failed"
    NOT_RUN = "not run"


class CheckResult(Struct, frozen=True):
    """Result of a check: ``violation`` if it failed; ``note`` is what was seen, or why it was not run."""

    check: Check
    outcome: CheckOutcome
    seconds: float
    note: str = ""
    violation: Violation | None = None

    @property
    def is_failure(self) -> bool:
        return self.outcome is CheckOutcome.FAILED and self.check.level is Level.MUST


class Judge:
    """Runs checks; those of one occasion share a container, which is started again if a check ended it."""

    def __init__(self, judging: Judging) -> None:
        self._judging = judging
        self._restarts = 0
        self._given_up = ""

    def run(self, checks: Iterable[Check], report: Callable[[CheckResult], None]) -> list[CheckResult]:
        """Run them in the order of occasions; each result is reported at once."""
        results = []
        for check in in_order(checks):
            result = self.judge(check)
            report(result)
            results.append(result)
        return results

    def judge(self, check: Check) -> CheckResult:
        began = time.monotonic()
        outcome, note, violation = self._tried(check)
        return CheckResult(check, outcome, time.monotonic() - began, note, violation)

    def _tried(self, check: Check) -> tuple[CheckOutcome, str, Violation | None]:
        try:
            self._refuse_futile(check)
            self._judging.turn_to(check.occasion)
            note = check.trial(self._judging)
        except (NotRun, CannotStart) as error:
            return CheckOutcome.NOT_RUN, str(error), None
        except StartFailed as error:
            return CheckOutcome.NOT_RUN, f"the container did not start: {error.reason}", None
        except Violation as error:
            return CheckOutcome.FAILED, self._aftermath(check), error
        except NoReply as error:
            aftermath = self._aftermath(check)
            return CheckOutcome.FAILED, aftermath, Violation(expected="an answer", got=str(error))
        return CheckOutcome.PASSED, note or "", None

    def _refuse_futile(self, check: Check) -> None:
        """Raises NotRun if the check can't be tried with this target, or no longer."""
        if check.occasion is not Occasion.RUNNING:
            self._judging.need_start()
        if check.occasion is Occasion.RUNNING and self._given_up:
            raise NotRun(self._given_up)

    def _aftermath(self, check: Check) -> str:
        """Starts the container again, some times at most, if a failed check has ended or blocked it."""
        judging = self._judging
        if check.occasion is not Occasion.RUNNING or not judging.is_dead:
            return ""
        status = judging.container.exit_status()
        what = "does not answer ping any more" if status is None else f"ended with status {status}"
        end = log_end(judging.container)
        if not judging.target.can_start or self._restarts == MOST_RESTARTS:
            self._given_up = f"the container {what}, after {check.name}"
        else:
            self._restarts += 1
            judging.close()
        return f"then the container {what}{end}"


def in_order(checks: Iterable[Check]) -> list[Check]:
    order = list(Occasion)
    return sorted(checks, key=lambda check: order.index(check.occasion))


def exit_status(results: Iterable[CheckResult]) -> int:
    """0 nothing found, 1 a must failed, 2 nothing could be run."""
    found = list(results)
    if any(result.is_failure for result in found):
        return 1
    return 2 if all(result.outcome is CheckOutcome.NOT_RUN for result in found) else 0


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
