"""What came of the checks: which are chosen, how they are told, and the exit status."""

from xml.etree import ElementTree as ET

import pytest

from tfs_proxy.tools.conform.check import Check, Level, NotRun, Occasion, RuleSource, Violation, selected
from tfs_proxy.tools.conform.checks import ALL, GROUPS
from tfs_proxy.tools.conform.judge import (
    CheckOutcome,
    CheckResult,
    exit_status,
    in_order,
    junit_text,
    result_lines,
)
from tfs_proxy.values.errors import SettingsError


def never(_judging: object) -> None:
    raise NotRun("never")


def result(name: str, outcome: CheckOutcome, level: Level = Level.MUST) -> CheckResult:
    check = Check(name, level, "It works.", RuleSource.PING, never)
    failed = outcome is CheckOutcome.FAILED
    violation = Violation(expected="200", got="500 \x1b[31m<b>\n", mend="Mend it.") if failed else None
    return CheckResult(check, outcome, 0.5, "" if failed else "seen", violation)


PASSED = result("ping/good", CheckOutcome.PASSED)
FAILED = result("ping/bad", CheckOutcome.FAILED)
ADVICE = result("ping/advice", CheckOutcome.FAILED, Level.SHOULD)
NOT_RUN = result("ping/none", CheckOutcome.NOT_RUN)


@pytest.mark.parametrize(
    ("results", "status"),
    [([PASSED, NOT_RUN], 0), ([PASSED, ADVICE], 0), ([PASSED, FAILED, ADVICE], 1), ([NOT_RUN, NOT_RUN], 2)],
)
def test_the_exit_status(results: list[CheckResult], status: int) -> None:
    assert exit_status(results) == status


def test_the_table_says_what_was_found() -> None:
    text = "\n".join(result_lines(FAILED))

    assert "FAILED ping/bad" in text
    assert "expected: 200" in text
    assert "got: 500 [31m<b>" in text.replace("  ", " ")
    assert "mend: Mend it." in text
    assert "\x1b" not in text
    assert result_lines(ADVICE)[0].startswith("advice ping/advice")
    assert result_lines(PASSED) == [f"ok     {'ping/good':36} seen"]


def test_junit() -> None:
    suite = ET.fromstring(junit_text("http://x", [PASSED, FAILED, ADVICE, NOT_RUN])).find("testsuite")

    assert suite is not None
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("4", "1", "1")
    kinds = {case.get("name"): [child.tag for child in case] for case in suite}
    assert kinds == {
        "good": ["system-out"],
        "bad": ["failure"],
        "advice": ["system-out"],
        "none": ["skipped"],
    }


def test_checks_are_chosen_by_group_and_by_name() -> None:
    """``--only`` and ``--skip`` take both, also joined by commas."""
    names = {check.name for check in selected(ALL, ["ping,errors/json"], ["ping/head"])}

    assert "errors/json" in names
    assert "ping/answers-200" in names
    assert "ping/head" not in names
    assert {name.partition("/")[0] for name in names} == {"ping", "errors"}
    assert selected(ALL, [], []) == list(ALL)


@pytest.mark.parametrize(
    ("only", "skip", "sentence"),
    [
        (["pong"], [], "--only pong is neither a group .start-stop, ping, .* nor a check"),
        ([], ["ping/pong"], "--skip ping/pong is neither"),
        (["ping"], ["ping"], "No check is left"),
    ],
)
def test_a_choice_that_is_none(only: list[str], skip: list[str], sentence: str) -> None:
    with pytest.raises(SettingsError, match=sentence):
        selected(ALL, only, skip)


def test_the_checks_are_well_formed() -> None:
    assert len({check.name for check in ALL}) == len(ALL) >= 60
    assert {check.group for check in ALL} == {group.name for group in GROUPS}
    assert [check.name for check in ALL if not check.sentence.endswith(".")] == []


def test_checks_of_one_occasion_are_neighbours() -> None:
    """So each needs one start; those that stop the container are behind those of the new one."""
    occasions = [check.occasion for check in in_order(ALL)]

    assert list(dict.fromkeys(occasions)) == list(Occasion)
    assert len(list(dict.fromkeys(occasions))) == sum(
        1 for left, right in zip([None, *occasions], occasions, strict=False) if left is not right
    )
