"""The checks as tests of pytest: ``pytest -p tfs_proxy.tools.conform.pytest_plugin --conform-command "..."``.

Each check is an item named after it. A must that fails is a failed test, advice an expected failure (xfail),
and what does not apply is skipped. The container is started for each occasion, as by ``tfs-proxy conform``.
"""

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tfs_proxy.settings.settings import Settings, inherited_environment
from tfs_proxy.tools.conform.check import Check, selected
from tfs_proxy.tools.conform.checks import ALL
from tfs_proxy.tools.conform.judge import CheckOutcome, CheckResult, Judge, in_order, result_lines
from tfs_proxy.tools.conform.target import Capability
from tfs_proxy.tools.conform.targets import DEFAULT_PORT, START_SECONDS, judging_of
from tfs_proxy.values.errors import StopServing


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options of ``tfs-proxy conform``, each with the prefix ``--conform-``."""
    group = parser.getgroup("conform", "SageMaker's contract (tfs-proxy conform)")
    group.addoption("--conform-url", metavar="URL", help="http://HOST:PORT of a container that runs")
    group.addoption("--conform-image", metavar="IMAGE", help="an image that Docker has")
    group.addoption("--conform-command", metavar="COMMAND", help="a command that serves; {port} and {model}")
    group.addoption("--conform-model", type=Path, metavar="MODEL", help="folder or archive of the model")
    group.addoption("--conform-requests", type=Path, metavar="FILE", help="JSON: what the container takes")
    group.addoption("--conform-port", type=int, default=DEFAULT_PORT, help="of a command without {port}")
    group.addoption("--conform-start-timeout", type=float, default=START_SECONDS, metavar="SECONDS")
    for name in ("env", "docker-option", "only", "skip"):
        group.addoption(f"--conform-{name}", action="append", default=[])
    for capability in Capability:
        group.addoption(f"--conform-{capability.value}", action="store_true")


def pytest_collection_modifyitems(
    session: pytest.Session, config: pytest.Config, items: list[pytest.Item]
) -> None:
    if all(config.getoption(f"conform_{name}") is None for name in ("url", "image", "command")):
        return
    try:
        checks = selected(ALL, config.getoption("conform_only"), config.getoption("conform_skip"))
        judge = _judge(config)
    except StopServing as error:
        raise pytest.UsageError(str(error)) from None
    items.extend(_item(session, check, judge) for check in in_order(checks))


def _item(session: pytest.Session, check: Check, judge: Judge) -> "CheckItem":
    return CheckItem.from_parent(
        session, name=check.name, nodeid=f"conform::{check.name}", check=check, judge=judge
    )


def _judge(config: pytest.Config) -> Judge:
    def option(name: str) -> Any:
        return config.getoption(f"conform_{name}")

    opened = ExitStack()
    config.add_cleanup(opened.close)
    return Judge(opened.enter_context(judging_of(option, Settings.from_env(), inherited_environment())))


class CheckItem(pytest.Item):
    def __init__(self, *, check: Check, judge: Judge, **more: object) -> None:
        super().__init__(**more)  # type: ignore[arg-type]  # what from_parent passes on
        self._check, self._judge = check, judge

    def runtest(self) -> None:
        result = self._judge.judge(self._check)
        if result.outcome is CheckOutcome.NOT_RUN:
            pytest.skip(result.note)
        if result.outcome is CheckOutcome.FAILED and not result.is_failure:
            pytest.xfail(_text(result))
        if result.is_failure:
            raise CheckFailed(_text(result))

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: object = None) -> str:
        if isinstance(excinfo.value, CheckFailed):
            return str(excinfo.value)
        return str(super().repr_failure(excinfo, style))  # type: ignore[arg-type]  # pytest's own Literal

    def reportinfo(self) -> tuple[Path, int | None, str]:
        """The test's name alone: there is no file to show."""
        return self.path, None, self.name


class CheckFailed(AssertionError):
    """A must failed."""


def _text(result: CheckResult) -> str:
    return "\n".join(line.strip() for line in result_lines(result))
