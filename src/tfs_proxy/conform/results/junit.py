"""Results -> JUnit's XML, which CI systems show: a must is a failure, advice stands in a test's output."""

from collections.abc import Sequence
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from tfs_proxy.conform.judge import CheckOutcome, CheckResult
from tfs_proxy.conform.results.table import printable, result_lines


def junit_text(target: str, results: Sequence[CheckResult]) -> str:
    """One suite with a case for each check."""
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
