"""One check after the other -> `CheckResult`: starts, restarts and stops what they need."""

import time
from collections.abc import Callable, Iterable
from enum import Enum

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
