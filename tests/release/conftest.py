"""The files of build/release, which `make release` makes; without them these tests are skipped."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

RELEASE = Path(__file__).resolve().parents[2] / "build" / "release"
PYTHONS = ("3.11", "3.12", "3.13")
OUTCOMES = ("passed", "failed", "error", "skipped")


@pytest.fixture(scope="session")
def release() -> Path:
    if not (RELEASE / "SHA256SUMS").exists():
        pytest.skip("there is no build/release: make release REHEARSAL=1")
    return RELEASE


@pytest.fixture(scope="session")
def wheel(release: Path) -> Path:
    (path,) = release.glob("*.whl")
    return path


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print a table: a row for each test of the wheel, a column for each Python."""
    rows = dict(cells(terminalreporter))
    tests = dict.fromkeys(test for test, _ in rows)
    if tests:
        terminalreporter.section("the wheel by itself")
        for name, cell in [
            ("", list(PYTHONS)),
            *((t, [rows.get((t, p), "") for p in PYTHONS]) for t in tests),
        ]:
            terminalreporter.line(f"{name:<64}" + "".join(f"{text:>16}" for text in cell))


def cells(terminalreporter: pytest.TerminalReporter) -> Iterator[tuple[tuple[str, str], str]]:
    """Outcome and seconds of each test that has a Python."""
    for outcome in OUTCOMES:
        for report in terminalreporter.stats.get(outcome, []):
            named = re.search(r"::test_(\w+)\[(3\.\d+)\]", report.nodeid)
            if named and (report.when == "call" or outcome != "passed"):
                yield (named[1].replace("_", " "), named[2]), f"{outcome} {report.duration:.0f} s"
